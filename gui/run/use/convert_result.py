"""Result of a conversion: files, their comparison with the model, and commands to run next."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontDatabase, QGuiApplication
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from engine.contract.inference.conversion import ComparedFile, Converted, NextCommand, read_converted
from engine.contract.problems import Problem
from engine.runs.metrics import measure_words
from engine.system.decode_errors import NOT_DECODED
from engine.system.format import duration
from engine.system.plain_text import shortened
from gui.actions import Action, bind
from gui.format import localised, significant, size
from gui.run.model.widgets import PlainTable
from gui.sources.background import describe_error, in_background
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.file_dialogs import reveal
from gui.widgets.labels import ProblemLabel, caption
from gui.widgets.layouts import hbox, scrolling, vbox


class ConvertResult(QWidget):
    """Result of a conversion.

    Signals:
        more_requested(): the user wants another conversion.
    """

    more_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._out = ""
        self.heading = styled(QLabel(wordWrap=True), "heading")
        self.problems = ProblemLabel()
        self.files = PlainTable(tr("Files"), (tr("File"), tr("Size")))
        self.compared = PlainTable(
            tr("Files compared with the model"),
            (tr("File"), tr("Largest difference"), tr("Time per image"), tr("Model in PyTorch")),
        )
        self.metrics = caption()
        self.next = vbox(spacing=10)
        self.open = Action(
            self, "open_conversion", tr("Open folder"), tr("Opens the files' folder in the file manager")
        )
        self.more = Action(self, "convert_more", tr("Convert again …"), tr("Writes other files"))
        self._lay_out()
        self.open.on_trigger(lambda: reveal(Path(self._out).parent if self._out.endswith(".zip") else Path(self._out)))
        self.more.on_trigger(self.more_requested.emit)

    def show_file(self, path: str) -> None:
        """Read the result in `path` on a thread and show it."""
        in_background(partial(_read, Path(path)), self, self._show_result, self._show_error)

    def _show_result(self, converted: Converted) -> None:
        self._out = converted.out
        self.heading.setText(
            shortened(tr("Written in {seconds}: {out}").format(seconds=duration(converted.seconds), out=converted.out))
        )
        self.problems.show_problems(converted.problems)
        self.files.show_rows([(f"{each.name}: {each.what}", size(each.size_bytes)) for each in converted.files])
        self.compared.show_rows([_comparison_row(each) for each in converted.compared])
        self.metrics.setText(
            "\n".join(filter(None, (_metrics_sentence(converted.task, each) for each in converted.compared)))
        )
        while (item := self.next.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.deleteLater()
        for command in converted.next_commands:
            self.next.addWidget(_CommandLine(command))

    def _show_error(self, error: Exception) -> None:
        self.heading.setText(tr("Couldn't read the result"))
        self.problems.show_problems((Problem("", f"{describe_error(error)}.", tr("Convert again.")),))

    def _lay_out(self) -> None:
        top = hbox((self.heading, 1), *(bind(QPushButton(), action) for action in (self.more, self.open)))
        content = vbox(self.problems, self.files, self.compared, self.metrics, self.next, 1, spacing=10)
        self.setLayout(vbox(top, (scrolling(content), 1)))


class _CommandLine(QWidget):
    """Command with its purpose and a copy button."""

    def __init__(self, command: NextCommand) -> None:
        super().__init__()
        text = QLabel(command.command, wordWrap=True)
        text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        copy = QPushButton(tr("Copy"))
        copy.setAccessibleName(tr("Copy the command: {purpose}").format(purpose=command.purpose))
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(command.command))
        self.setLayout(vbox(caption(command.purpose), hbox((text, 1), copy), spacing=2))


def _read(file: Path) -> Converted:
    try:
        return read_converted(file)
    except NOT_DECODED as error:
        raise OSError(f"{file} is damaged: {error}") from error


def _comparison_row(each: ComparedFile) -> tuple[str, ...]:
    most = max((one.difference for one in each.differences), default=None)
    return (
        each.name,
        significant(most, 2) if most is not None else "",
        *(f"{localised(ms, 1)} ms" if ms is not None else "" for ms in (each.milliseconds, each.torch_milliseconds)),
    )


def _metrics_sentence(task: str, each: ComparedFile) -> str:
    """Return a sentence that compares the file's metrics with the model's."""
    if not each.measures:
        return ""
    pairs = ", ".join(
        f"{measure_words(task, name, value, localised)} (model: {measure_words(task, name, each.torch_measures[name], localised)})"
        for name, value in each.measures.items()
    )
    return tr("{name} on {samples} validation samples: {pairs}.").format(
        name=each.name, samples=localised(each.samples), pairs=pairs
    )
