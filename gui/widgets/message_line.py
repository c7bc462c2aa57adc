"""The one line in which the window speaks of itself: what went wrong in it, and its keys."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QToolButton

from engine.system.plain_text import shortened
from gui.style import icons
from gui.widgets.icon_label import IconLabel

Kind = Literal["warning", "info"]


class MessageLine(QFrame):
    """Hidden until there is something to say, and again once it has been read."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._mark = IconLabel()
        self._text = QLabel()
        self._text.setAccessibleName("Message")
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setWordWrap(True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._close = QToolButton()
        self._close.setObjectName("flat")
        self._close.setIcon(icons.icon("close", "muted"))
        self._close.setAccessibleName("Dismiss the message")
        self._close.clicked.connect(self.hide)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(14, 4, 10, 4)
        layout.addWidget(self._mark)
        layout.addWidget(self._text, 1)
        layout.addWidget(self._close)
        self.hide()

    def say(self, text: str, kind: Kind = "warning") -> None:
        if kind == "warning":
            self._mark.show_icon("warning", "warning", "Warning")
        else:
            self._mark.show_icon("info", "accent", "Information")
        self._text.setText(shortened(text))
        self.show()

    def text(self) -> str:
        return self._text.text()
