"""A finished run's result: its best metric, its checkpoints, and the code that loads them, in one line."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QToolButton, QWidget

from engine.contract.events import RunFinished
from engine.runs.folder import RunFolder
from engine.runs.metrics import measure_words
from engine.system.format import duration
from gui.format import localised, size
from gui.run.loading_code import loading_code
from gui.sources.run_data import RunData
from gui.style import icons
from gui.widgets.elided_label import ElidedLabel
from gui.widgets.file_dialogs import reveal


class ResultCard(QWidget):
    """One line, shown once a run has ended, however it ended.

    `code` holds the lines of Python that load the best checkpoint, "" where there is none.

    Signals: export_wanted() - the run is to be written to one file.
    """

    export_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = ""
        self.code = ""
        self._text = ElidedLabel()
        self._text.setObjectName("muted")
        self._text.setAccessibleName("Result")
        self.copy = _button("copy", "Copy loading code", "Copies the PyTorch code that loads the best checkpoint")
        self.copy.clicked.connect(self._copy_code)
        self.export = _button(
            "export",
            "Export the run",
            "Saves a zip file for bug reports with the job, logs and machine information, without checkpoints",
        )
        self.export.clicked.connect(self.export_wanted)
        self.open = _button("folder", "Open folder", "Opens the run's folder in the file manager")
        self.open.clicked.connect(self._open_folder)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addWidget(self._text, 1)
        for button in (self.copy, self.export, self.open):
            layout.addWidget(button)

    def show_result(self, run: RunFolder, data: RunData) -> None:
        """Fills the line from a run that has ended."""
        self._folder = str(run.path)
        facts = _facts(run, data, data.finished)
        self._text.setText(" · ".join(facts))
        self._text.setToolTip("\n".join(facts))
        self._text.setAccessibleDescription(self._text.text())
        self.code = _code(run, data)
        self.copy.setVisible(bool(self.code))
        self.copy.setToolTip(f"Copy loading code:\n{self.code}")

    def _open_folder(self) -> None:
        reveal(Path(self._folder))

    def _copy_code(self) -> None:
        QGuiApplication.clipboard().setText(self.code)


def _code(run: RunFolder, data: RunData) -> str:
    saved = data.checkpoints.get("best") or data.checkpoints.get("last")
    if saved is None or data.started is None or data.plan is None:
        return ""
    return loading_code(data.started.job, data.plan, str(run.path / saved.path), saved.kind)


def _button(icon: str, name: str, tip: str) -> QToolButton:
    button = QToolButton()
    button.setObjectName("flat")
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    button.setIcon(icons.icon(icon, "text"))
    button.setAccessibleName(name)
    button.setAccessibleDescription(tip)
    button.setToolTip(f"{name}: {tip[0].lower()}{tip[1:]}")
    return button


def _facts(run: RunFolder, data: RunData, finished: RunFinished | None) -> list[str]:
    facts = [f"Took {duration(data.seconds(finished))}"] if finished is not None and finished.seconds else []
    if finished is not None and finished.best:
        where = f" (epoch {finished.best_epoch})" if finished.best_epoch is not None else ""
        facts.append(f"best {measures_words(finished.best, data)}{where}")
    if data.checkpoints:
        files = [f"{Path(saved.path).name} ({size(saved.bytes)})" for _, saved in sorted(data.checkpoints.items())]
        facts.append(f"{' and '.join(files)} in {run.checkpoints}")
    if data.failure is not None and data.failure.traceback_file:
        facts.append(f"Full traceback: {run.path / data.failure.traceback_file}")
    if not data.checkpoints:
        facts.append("No checkpoint was saved.")
    return facts


def measures_words(measures: dict[str, float], data: RunData) -> str:
    """All measures with their titles and units."""
    task = data.started.job.task if data.started is not None else ""
    return ", ".join(measure_words(task, name, value, localised) for name, value in measures.items())
