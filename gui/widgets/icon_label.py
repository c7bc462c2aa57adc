"""Label with an icon."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QLabel

from gui.style import icons


class IconLabel(QLabel):
    """Icon of 16 pixels that follows the scheme; `spoken` is its accessible name."""

    def __init__(self, name: str = "", color: str = "", spoken: str = "") -> None:
        super().__init__()
        self._icon = QIcon()
        if name:
            self.show_icon(name, color, spoken)

    def show_icon(self, name: str, color: str, spoken: str) -> None:
        self._icon = icons.icon(name, color)
        self.setAccessibleName(spoken)
        self._draw()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.StyleChange:
            self._draw()

    def _draw(self) -> None:
        self.setPixmap(self._icon.pixmap(QSize(16, 16), self.devicePixelRatioF()))
