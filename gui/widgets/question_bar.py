"""Banner that asks a question in place, and then shows the result."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QPushButton, QWidget

from gui.widgets.banner import Banner


class QuestionBar(Banner):
    """Banner with the buttons `yes` and `no`, connected by the owner; Escape presses `no`."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        """Create a bar with an accessible name."""
        yes, no = QPushButton("Yes"), QPushButton("No")  # a control has a name before it is first asked, too
        super().__init__(yes, no, name=name, parent=parent)
        self.yes, self.no = yes, no

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.no.click()
        else:
            super().keyPressEvent(event)
