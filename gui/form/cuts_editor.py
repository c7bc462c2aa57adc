"""Where the model is cut: chosen by measuring, or moved by hand on a page of its own."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QBoxLayout, QLineEdit, QPushButton

from gui.format import counted
from gui.widgets.editors import Editor

AUTOMATIC = "automatic"


class CutsEditor(Editor):
    """The cuts in words, and the way to the image in which they can be moved.

    Signals: wanted() - the image of the cut is asked for.
    """

    wanted = Signal()

    def __init__(self) -> None:
        self.line = QLineEdit()
        self.line.setReadOnly(True)
        self.line.setMinimumWidth(56)
        self.line.setAcceptDrops(False)  # a dropped folder belongs to the window
        super().__init__(self.line)
        self._cuts: tuple[str, ...] = ()
        self.show_button = QPushButton("Show the cut…")
        self.show_button.setToolTip("Measures the model and shows its cuts, which you can move")
        self.show_button.clicked.connect(self.wanted)
        layout = self.layout()
        assert isinstance(layout, QBoxLayout)
        layout.setDirection(QBoxLayout.Direction.TopToBottom)
        layout.addWidget(self.show_button)
        self.set_value(())

    def value(self) -> tuple[str, ...]:
        return self._cuts

    def set_value(self, value: Any) -> None:
        self._cuts = tuple(value)
        self.line.setText(in_words(self._cuts))
        self.line.setToolTip(", ".join(self._cuts))
        self.edited.emit()


def in_words(cuts: tuple[str, ...]) -> str:
    """ "automatic" or "moved by hand (2 cuts)"."""
    if not cuts:
        return AUTOMATIC
    return f"moved by hand ({counted(len(cuts), 'cut')})"
