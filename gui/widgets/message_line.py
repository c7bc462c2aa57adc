"""The one line in which the window speaks of itself: what went wrong in it, and its keys."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QToolButton

from engine.system.plain_text import shortened
from gui.style import icons, theme

Kind = Literal["warning", "info"]


class MessageLine(QFrame):
    """Hidden until there is something to say, and again once it has been read."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._mark = QLabel()
        self._kind: Kind = "warning"
        self._text = QLabel()
        self._text.setAccessibleName("Message")
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setWordWrap(True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._close = QToolButton()
        self._close.setObjectName("flat")
        self._close.setAccessibleName("Dismiss the message")
        self._close.clicked.connect(self.hide)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 4, 10, 4)
        layout.addWidget(self._mark)
        layout.addWidget(self._text, 1)
        layout.addWidget(self._close)
        theme.notifier.changed.connect(self._paint)
        self._paint()
        self.hide()

    def say(self, text: str, kind: Kind = "warning") -> None:
        self._kind = kind
        self._paint()
        self._text.setText(shortened(text))
        self.show()

    def text(self) -> str:
        return self._text.text()

    def _paint(self) -> None:
        color = theme.colors().warning if self._kind == "warning" else theme.colors().accent
        self._mark.setPixmap(icons.pixmap(self._kind, color, 16, self.devicePixelRatioF()))
        self._mark.setAccessibleName("Warning" if self._kind == "warning" else "Information")
        self._close.setIcon(icons.icon("close", theme.colors().muted))
