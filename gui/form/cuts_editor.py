"""Editor of the cuts of a pipelined model."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QBoxLayout, QLineEdit, QPushButton

from gui.format import counted
from gui.translation import tr
from gui.widgets.editors import Editor

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
