"""A banner that asks something where it is asked about, and then says what came of it: nothing modal."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QPushButton, QWidget

from gui.widgets.banner import Banner


class QuestionBar(Banner):
    """Has two buttons, `yes` and `no`, whose clicks the owner connects; Escape presses `no`."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        """`name` is what screen readers call it."""
        yes, no = QPushButton("Yes"), QPushButton("No")  # a control has a name before it is first asked, too
        super().__init__(yes, no, name=name, parent=parent)
        self.yes, self.no = yes, no

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.no.click()
        else:
            super().keyPressEvent(event)
