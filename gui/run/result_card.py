"""A finished run's result: its best metric, its checkpoints, and the code that loads them."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from engine.contract.events import RunFinished
from engine.runs.folder import RunFolder
from engine.runs.metrics import measure_words
from engine.system.format import duration, size
from gui.run.loading_code import loading_code
from gui.sources.run_data import RunData
from gui.sources.run_status import RunStatus, cause_of
from gui.widgets.file_dialogs import reveal


class ResultCard(QFrame):
    """Shown once a run has ended, however it ended.

    `code` holds the lines of Python that load the best checkpoint, "" where there is none.

    Signals: export_wanted() - the run is to be written to one file.
    """

    export_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._folder = ""
        self._title = QLabel(wordWrap=True)
        self._title.setObjectName("heading")
        self._text = QLabel(wordWrap=True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.code = ""
        self._open = QPushButton("Open folder")
        self._open.setAccessibleDescription("Opens the run's folder in the file manager")
        self._open.clicked.connect(self._open_folder)
        self._copy = QPushButton("Copy loading code")
        self._copy.setAccessibleDescription("Copies the PyTorch code that loads the best checkpoint")
        self._copy.clicked.connect(self._copy_code)
        self.export = QPushButton("Export …")
        self.export.setToolTip(
            "Saves a zip file for bug reports with the job, logs and machine information, without checkpoints"
        )
        self.export.clicked.connect(self.export_wanted)
        hide = QToolButton()
        hide.setObjectName("flat")
        hide.setText("Hide")
        hide.setAccessibleName("Hide the result")
        hide.clicked.connect(self.hide)
        top = QHBoxLayout()
        top.addWidget(self._title, 1)
        for button in (self._copy, self.export, self._open, hide):
            top.addWidget(button)
        layout = QVBoxLayout(self)
        layout.addLayout(top)
        layout.addWidget(self._text)

    def show_result(self, run: RunFolder, data: RunData, status: RunStatus) -> None:
        """Fills the card from a run that has ended."""
        self._folder = str(run.path)
        finished = data.finished
        self._title.setText(_title(data, status))
        self._text.setText("\n".join(_facts(run, data, finished)))
        self.code = _code(run, data)
        self._copy.setVisible(bool(self.code))
        self._copy.setToolTip(self.code)

    def _open_folder(self) -> None:
        reveal(Path(self._folder))

    def _copy_code(self) -> None:
        QGuiApplication.clipboard().setText(self.code)


def _code(run: RunFolder, data: RunData) -> str:
    saved = data.checkpoints.get("best") or data.checkpoints.get("last")
    if saved is None or data.started is None or data.plan is None:
        return ""
    return loading_code(data.started.job, data.plan, str(run.path / saved.path), saved.kind)


def _title(data: RunData, status: RunStatus) -> str:
    if status.word in ("Failed", "Unsaved"):
        return f"{status.word}: {cause_of(data)}"
    word = status.word
    title: str = word
    if data.finished is not None and data.finished.seconds:
        title += f" {'in' if word == 'Completed' else 'after'} {duration(data.seconds(data.finished))}"
    return title


def _facts(run: RunFolder, data: RunData, finished: RunFinished | None) -> list[str]:
    facts = []
    if finished is not None and finished.best:
        where = f" (epoch {finished.best_epoch})" if finished.best_epoch is not None else ""
        facts.append(f"Best: {measures_words(finished.best, data)}{where}")
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
    return ", ".join(measure_words(task, name, value) for name, value in measures.items())
