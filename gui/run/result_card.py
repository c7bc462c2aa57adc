"""Result of a finished run in one line: best metric, checkpoints and loading code."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QToolButton, QWidget

from engine.runs.folder import RunFolder
from engine.runs.metrics import measure_words
from engine.system.format import duration
from gui.format import localised, size
from gui.run.loading_code import loading_code
from gui.sources.run_data import RunData
from gui.style import icons
from gui.translation import tr
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import hbox


class ResultCard(QWidget):
    """Result of a run that has ended.

    Signals:
        export_requested(): the user wants to export the run.

    Attributes:
        code: Python that loads the best checkpoint, "" without one.
    """

    export_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._folder = ""
        self.code = ""
        self._text = ElidedLabel()
        self._text.setObjectName("muted")
        self._text.setAccessibleName(tr("Result"))
        self.copy = _button(
            "copy", tr("Copy loading code"), tr("Copies the PyTorch code that loads the best checkpoint")
        )
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.code))
        self.export = _button(
            "export",
            tr("Export the run"),
            tr("Saves a zip file for bug reports with the job, logs and machine information, without checkpoints"),
        )
        self.export.clicked.connect(self.export_requested)
        self.open = _button("folder", tr("Open folder"), tr("Opens the run's folder in the file manager"))
        self.open.clicked.connect(lambda: reveal(Path(self._folder)))
        self.setLayout(hbox((self._text, 1), self.copy, self.export, self.open, spacing=2))

    def show_result(self, run: RunFolder, data: RunData) -> None:
        """Show the result of a run that has ended."""
        self._folder = str(run.path)
        facts = _facts(run, data)
        self._text.setText(" · ".join(facts))
        self._text.setToolTip("\n".join(facts))
        self._text.setAccessibleDescription(self._text.text())
        self.code = _code(run, data)
        self.copy.setVisible(bool(self.code))
        self.copy.setToolTip(tr("Copy loading code:\n{code}").format(code=self.code))


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


def _facts(run: RunFolder, data: RunData) -> list[str]:
    finished = data.finished
    facts = (
        [tr("Took {duration}").format(duration=duration(data.seconds(finished)))]
        if finished is not None and finished.seconds
        else []
    )
    if finished is not None and finished.best:
        epoch = f" (epoch {finished.best_epoch})" if finished.best_epoch is not None else ""
        facts.append(f"best {_format_metrics(finished.best, data)}{epoch}")
    if data.checkpoints:
        files = [f"{Path(saved.path).name} ({size(saved.bytes)})" for _, saved in sorted(data.checkpoints.items())]
        facts.append(f"{' and '.join(files)} in {run.checkpoints}")
    if data.failure is not None and data.failure.traceback_file:
        facts.append(f"Full traceback: {run.path / data.failure.traceback_file}")
    if not data.checkpoints:
        facts.append(tr("No checkpoint was saved."))
    return facts


def _format_metrics(metrics: dict[str, float], data: RunData) -> str:
    """Format all metrics with titles and units."""
    task = data.started.job.task if data.started is not None else ""
    return ", ".join(measure_words(task, name, value, localised) for name, value in metrics.items())
