"""One message where it belongs: how bad it is, what it says, and what can be done about it."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QWidget

from engine.system.plain_text import shortened
from gui.style import icons
from gui.widgets.icon_label import IconLabel

Severity = Literal["info", "ok", "warning", "error"]

_SPOKEN: dict[Severity, str] = {"info": "Information", "ok": "Done", "warning": "Warning", "error": "Error"}


class Banner(QFrame):
    """Hidden until it says something, which it is not to do before it has its place in a layout: it shows itself. The
    text wraps, so that all of it can be read.

    Signals: closed() - its cross has been pressed.
    """

    closed = Signal()

    def __init__(self, *buttons: QPushButton, name: str = "", close: str = "", parent: QWidget | None = None) -> None:
        """`name` is what screen readers call it, and `close` the cross, which is there where that is given."""
        super().__init__(parent)
        self.setObjectName("card")
        self._buttons = buttons
        self._mark = IconLabel()
        self._severity: Severity | None = None
        self.label = QLabel(wordWrap=True)
        self.setAccessibleName(name)
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 4, 8, 4)
        row.setSpacing(8)
        row.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignVCenter)
        row.addWidget(self.label, 1)
        for button in buttons:
            row.addWidget(button)
        if close:
            row.addWidget(self._cross(close))
        self.hide()

    def say(self, text: str, severity: Severity = "warning", *titles: str) -> None:
        """Shows `text`, and with `titles` what the buttons say, of which an empty one hides its button. Hides itself
        where there is no text. Screen readers are told what is new.
        """
        if severity != self._severity:
            self._severity = severity
            self._mark.show_icon(severity, "accent" if severity == "info" else severity, _SPOKEN[severity])
        before, text = self.text(), shortened(text)
        self.label.setText(text)
        for button, title in zip(self._buttons, titles, strict=False):
            if title:
                button.setText(title)
            button.setVisible(bool(title))
        for button in self._buttons:
            if not button.toolTip():
                button.setAccessibleDescription(text)  # read out as the focus arrives
        news = self.isHidden() or text != before
        self.setVisible(bool(text))
        if news and self.isVisible():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    def text(self) -> str:
        return self.label.text()

    def _cross(self, name: str) -> QToolButton:
        cross = QToolButton()
        cross.setObjectName("flat")
        cross.setIcon(icons.icon("close", "muted"))
        cross.setAccessibleName(name)
        cross.clicked.connect(self.hide)
        cross.clicked.connect(self.closed)
        return cross
