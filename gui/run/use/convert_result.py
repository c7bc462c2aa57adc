"""What came of a conversion: the files, how they compare with the model, and the commands to go on with."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from engine.contract.inference.conversion import ComparedFile, Converted, NextCommand, read_converted
from engine.contract.problems import Problem
from engine.runs.metrics import measure_words
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import duration
from engine.system.plain_text import shortened
from gui.actions import Action, bind
from gui.format import localised, significant, size
from gui.run.model.plain_table import PlainTable
from gui.run.model.plot import caption
from gui.sources.background import describe_error, in_background
from gui.widgets.file_dialogs import reveal
from gui.widgets.problem_label import ProblemLabel
from gui.widgets.scroll_panel import scroll_panel


class ConvertResult(QWidget):
    """Signals: more_wanted() - something else is to be written."""

    more_wanted = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._out = ""
        self.heading = QLabel(wordWrap=True)
        self.heading.setObjectName("heading")
        self.remarks = ProblemLabel()
        self.files = PlainTable("Files", ("File", "Size"))
        self.compared = PlainTable(
            "Files compared with the model", ("File", "Largest difference", "Time per image", "Model in PyTorch")
        )
        self.measures = caption()
        self.next = QVBoxLayout()
        self.open = Action(self, "open_conversion", "Open folder", "Opens the files' folder in the file manager")
        self.more = Action(self, "convert_more", "Convert again …", "Writes other files")
        self._lay_out()
        self.open.on_trigger(lambda: reveal(Path(self._out).parent if self._out.endswith(".zip") else Path(self._out)))
        self.more.on_trigger(self.more_wanted.emit)

    def show_file(self, path: str) -> None:
        """Shows what the file at `path` says, once it has been read."""
        in_background(partial(_read, Path(path)), self, self._show, self._unread)

    def _show(self, made: Converted) -> None:
        self._out = made.out
        self.heading.setText(shortened(f"Written in {duration(made.seconds)}: {made.out}"))
        self.remarks.show_problems(made.problems)
        self.files.show_rows([(f"{each.name}: {each.what}", size(each.size_bytes)) for each in made.files])
        self.compared.show_rows([_compared(each) for each in made.compared])
        self.measures.setText("\n".join(filter(None, (_measured(made.task, each) for each in made.compared))))
        while (item := self.next.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.deleteLater()
        for command in made.next_commands:
            self.next.addWidget(_CommandLine(command))

    def _unread(self, error: Exception) -> None:
        self.heading.setText("The result can't be read")
        self.remarks.show_problems((Problem("", f"{describe_error(error)}.", "Convert again."),))

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.addWidget(self.heading, 1)
        for action in (self.more, self.open):
            top.addWidget(bind(QPushButton(), action), 0, Qt.AlignmentFlag.AlignTop)
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(0, 0, 4, 0)
        column.setSpacing(10)
        for widget in (self.remarks, self.files, self.compared, self.measures):
            column.addWidget(widget)
        column.addLayout(self.next)
        column.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addLayout(top)
        layout.addWidget(scroll_panel(inside), 1)


class _CommandLine(QWidget):
    """A command to go on with, what it is for, and a button that copies it."""

    def __init__(self, command: NextCommand) -> None:
        super().__init__()
        text = QLabel(command.command, wordWrap=True)
        text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        text.setTextFormat(Qt.TextFormat.PlainText)
        text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        copy = QPushButton("Copy")
        copy.setAccessibleName(f"Copy the command: {command.purpose}")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(command.command))
        row = QHBoxLayout()
        row.addWidget(text, 1)
        row.addWidget(copy, 0, Qt.AlignmentFlag.AlignTop)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        layout.addWidget(caption(command.purpose))
        layout.addLayout(row)


def _read(file: Path) -> Converted:
    try:
        return read_converted(file)
    except NOT_DECODED as error:
        raise OSError(f"{file} is damaged: {error}") from error


def _compared(each: ComparedFile) -> tuple[str, ...]:
    most = max((one.difference for one in each.differences), default=None)
    return (
        each.name,
        significant(most, 2) if most is not None else "",
        *(f"{localised(ms, 1)} ms" if ms is not None else "" for ms in (each.milliseconds, each.torch_milliseconds)),
    )


def _measured(task: str, each: ComparedFile) -> str:
    """The file's measures beside the model's, in a sentence."""
    if not each.measures:
        return ""
    pairs = ", ".join(
        f"{measure_words(task, name, value, localised)} (model: {measure_words(task, name, each.torch_measures[name], localised)})"
        for name, value in each.measures.items()
    )
    return f"{each.name} on {localised(each.samples)} validation samples: {pairs}."
