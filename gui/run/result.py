"""What came of a run: its best measure, where its checkpoints are, and how to load them."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from engine.contract.catalogue import load_catalogue
from engine.contract.events import RunFinished
from engine.contract.job import Job
from engine.contract.runs import RunFolder
from gui.files import reveal
from gui.run.data import RunData
from gui.run.status import RunStatus, cause_of
from gui.run.words import duration, measure_words


class ResultCard(QFrame):
    """Shown once a run has ended, however it ended."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("card")
        self._folder = ""
        self._title = QLabel(wordWrap=True)
        self._title.setObjectName("heading")
        self._text = QLabel(wordWrap=True)
        self._code = QPlainTextEdit(readOnly=True)
        self._code.setAccessibleName("How to load the best checkpoint in PyTorch")
        self._code.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self._code.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self._code.setTabChangesFocus(True)
        self._code.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._code.setFixedHeight(2 * self._code.fontMetrics().lineSpacing() + 34)
        self._open = QPushButton("Open folder")
        self._open.setAccessibleDescription("Opens the run's folder in the file manager")
        self._open.clicked.connect(self._open_folder)
        self._copy = QPushButton("Copy code")
        self._copy.setAccessibleDescription("Copies the lines that load the best checkpoint")
        self._copy.clicked.connect(self._copy_code)
        hide = QToolButton()
        hide.setObjectName("flat")
        hide.setText("Hide")
        hide.setAccessibleName("Hide the result")
        hide.clicked.connect(self.hide)
        buttons = QVBoxLayout()
        buttons.addWidget(self._open)
        buttons.addWidget(self._copy)
        buttons.addWidget(hide, 0, Qt.AlignmentFlag.AlignRight)
        buttons.addStretch(1)
        words = QVBoxLayout()
        words.addWidget(self._title)
        words.addWidget(self._text)
        words.addWidget(self._code)
        row = QHBoxLayout(self)
        row.addLayout(words, 1)
        row.addLayout(buttons)

    @property
    def code(self) -> str:
        """The lines of Python that load the best checkpoint, "" where there is none."""
        return self._code.toPlainText()

    def show_result(self, run: RunFolder, data: RunData, status: RunStatus) -> None:
        """Fills the card from a run that has ended."""
        self._folder = str(run.path)
        finished = data.finished
        self._title.setText(_title(data, status))
        self._text.setText("\n".join(_facts(run, data, finished)))
        best = data.checkpoints.get("best") or data.checkpoints.get("last")
        self._code.setPlainText(loading_code(data, str(run.path / best.path)) if best is not None else "")
        for widget in (self._code, self._copy):
            widget.setVisible(best is not None)

    def _open_folder(self) -> None:
        reveal(Path(self._folder))

    def _copy_code(self) -> None:
        QGuiApplication.clipboard().setText(self.code)


def _title(data: RunData, status: RunStatus) -> str:
    if status.word == "Failed":
        return f"Failed: {cause_of(data)}"
    title: str = status.word
    if data.finished is not None and data.finished.seconds:
        title += f" in {duration(data.finished.seconds)}"
    return title


def _facts(run: RunFolder, data: RunData, finished: RunFinished | None) -> list[str]:
    facts = []
    if finished is not None and finished.best:
        where = f" (epoch {finished.best_epoch})" if finished.best_epoch is not None else ""
        facts.append(f"Best: {measures_words(finished.best, data)}{where}")
    for kind, event in sorted(data.checkpoints.items()):
        facts.append(f"{kind.capitalize()} checkpoint, {event.bytes / 1e6:.1f} MB: {run.path / event.path}")
    if data.failure is not None and data.failure.traceback_file:
        facts.append(f"The full report: {run.path / data.failure.traceback_file}")
    if not data.checkpoints:
        facts.append("No checkpoint was saved.")
    return facts


def measures_words(measures: dict[str, float], data: RunData) -> str:
    """All measures with their titles and units."""
    task = data.started.job.task if data.started is not None else ""
    return ", ".join(measure_words(task, name, value) for name, value in measures.items())


def loading_code(data: RunData, path: str) -> str:
    """Two lines of PyTorch that load a checkpoint into the plain model."""
    job = data.started.job if data.started is not None else Job()
    classes = len(data.plan.classes) if data.plan is not None else 0
    if job.model_is_file:
        build = f'from runpy import run_path; model = run_path({job.model!r})["build_model"]({classes})'
    elif load_catalogue().model(job.model) is not None and job.model != "mnist_cnn":
        build = f"import torch, torchvision; model = torchvision.models.get_model({job.model!r}, num_classes={classes})"
    else:
        build = f"import torch; from engine.tasks.models import MnistCnn; model = MnistCnn({classes})"
    lead = "import torch; " if "import torch" not in build else ""
    return f'{lead}{build}\nmodel.load_state_dict(torch.load({path!r}, weights_only=True)["model"])'
