"""Editors of the model and of its cuts."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QStringListModel, Qt, QTimer, Signal
from PySide6.QtWidgets import QBoxLayout, QCompleter, QLineEdit, QPushButton

from engine.contract.catalogue import ModelEntry
from engine.contract.job import TIMM
from gui.format import counted, localised
from gui.style import icons
from gui.translation import tr
from gui.widgets import file_dialogs
from gui.widgets.buttons import tool_button
from gui.widgets.editors import Editor, PathLine

AUTOMATIC = "automatic"


class CutsEditor(Editor):
    """Summary of the cuts with a button that opens the partition page.

    Signals:
        requested(): Open the partition page.
    """

    requested = Signal()

    def __init__(self) -> None:
        self.line = QLineEdit()
        self.line.setReadOnly(True)
        self.line.setMinimumWidth(56)
        self.line.setAcceptDrops(False)  # a dropped folder belongs to the window
        super().__init__(self.line)
        self._cuts: tuple[str, ...] = ()
        self.show_button = QPushButton(tr("Show partition…"))
        self.show_button.setToolTip(tr("Measures the model and shows its cuts, which you can move"))
        self.show_button.clicked.connect(self.requested)
        layout = self.layout()
        assert isinstance(layout, QBoxLayout)
        layout.setDirection(QBoxLayout.Direction.TopToBottom)
        layout.addWidget(self.show_button)
        self.set_value(())

    def value(self) -> tuple[str, ...]:
        return self._cuts

    def set_value(self, value: Any) -> None:
        self._cuts = tuple(value)
        self.line.setText(cuts_text(self._cuts))
        self.line.setToolTip(", ".join(self._cuts))
        self.edited.emit()


def cuts_text(cuts: tuple[str, ...]) -> str:
    """Return "automatic" or "moved by hand (2 cuts)"."""
    if not cuts:
        return AUTOMATIC
    return f"moved by hand ({counted(len(cuts), 'cut')})"


def describe(entry: ModelEntry) -> str:
    """Return the model's title, size and family for lists."""
    return f"{entry.title} · {_millions(entry.parameters)} parameters · {entry.family}"


def _millions(count: int) -> str:
    return f"{localised(count / 1e6, 1)} M" if count >= 1e5 else localised(count)


class ModelPicker(Editor):
    """Search field over the models; its value is the id of a model or the path of a file."""

    def __init__(self, models: tuple[ModelEntry, ...]) -> None:
        self.line = PathLine()
        self.line.setAcceptDrops(False)
        super().__init__(self.line)
        self._completer = self._make_completer()
        self.line.setCompleter(self._completer)
        self.line.textChanged.connect(lambda _text: self.edited.emit())
        self.list_button = tool_button(
            self.show_all, icon=icons.icon("down", "muted"), name=tr("All models"), tip=tr("All models")
        )
        self.file_button = tool_button(
            self.choose_file, icon=icons.icon("file", "muted"), name=tr("Choose a Python file")
        )
        layout = self.layout()
        assert layout is not None
        layout.addWidget(self.list_button)
        layout.addWidget(self.file_button)
        self._wanted = ""
        self.set_models(models)

    def set_models(self, models: tuple[ModelEntry, ...], of_file: bool = False) -> None:
        """Offer models and keep the text; with `of_file`, the task itself is a Python file."""
        self._wanted = (
            tr("Choose your task's Python file")
            if of_file
            else tr("Choose a Python file with build_model(num_classes)")
        )
        by_name = any(model.id.startswith(TIMM) for model in models)
        search = f"Type to search, or {TIMM}NAME" if by_name else tr("Type to search, e.g. resnet")
        self.line.setPlaceholderText(tr("A Python file") if of_file else search)
        self.list_button.setVisible(bool(models))
        self.file_button.setToolTip(self._wanted)
        self._by_text = {describe(entry): entry.id for entry in models}
        self._by_title = {entry.title.lower(): entry.id for entry in models}
        self._completer.setModel(QStringListModel(list(self._by_text), self._completer))

    def value(self) -> str:
        text = self.line.text().strip()
        return self._by_text.get(text) or self._by_title.get(text.lower()) or text

    def set_value(self, value: Any) -> None:
        self.line.setText(str(value))
        self.line.setCursorPosition(0)  # show the beginning of a long name

    def show_all(self) -> None:
        """Open the list of all models."""
        self.line.setFocus(Qt.FocusReason.OtherFocusReason)
        self._completer.setCompletionPrefix("")
        self._completer.complete()

    def choose_file(self) -> None:
        file_dialogs.choose(self, self._wanted, "", False, self.set_value)

    def _make_completer(self) -> QCompleter:
        completer = QCompleter(self)
        completer.setCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        completer.setFilterMode(Qt.MatchFlag.MatchContains)
        completer.setMaxVisibleItems(14)
        popup = completer.popup()
        assert popup is not None
        popup.setAccessibleName(tr("Models that match"))
        completer.activated.connect(self._picked)
        return completer

    def _picked(self, text: str) -> None:
        # The completer writes its text after this signal, so the id is set in the next turn of the event loop.
        QTimer.singleShot(0, self, lambda: self.set_value(self._by_text.get(text, text)))
