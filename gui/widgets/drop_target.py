"""Notice over a widget while something is dragged over it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QLabel, QWidget

from gui.widgets.buttons import styled


class DropTarget(QLabel):
    """Notice that covers `covered` from `cover` until the dragged files leave it or are dropped."""

    def __init__(self, covered: QWidget, text: str) -> None:
        super().__init__(text, covered, alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        styled(self, "drop")
        self._covered = covered
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        covered.installEventFilter(self)
        self.hide()

    def cover(self) -> None:
        """Show the notice over the widget."""
        self.setGeometry(self._covered.rect())
        self.show()
        self.raise_()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._covered and event.type() in (QEvent.Type.DragLeave, QEvent.Type.Drop):
            self.hide()
        return super().eventFilter(watched, event)
