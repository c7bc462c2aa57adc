"""Inline message with a severity and buttons for remedies."""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QKeyEvent
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QToolButton, QWidget

from engine.system.plain_text import shorten
from gui.style import icons
from gui.translation import tr
from gui.widgets.buttons import tool_button
from gui.widgets.labels import IconLabel
from gui.widgets.layouts import hbox

Severity = Literal["info", "ok", "warning", "error"]

_SPOKEN: dict[Severity, str] = {
    "info": tr("Information"),
    "ok": tr("Done"),
    "warning": tr("Warning"),
    "error": tr("Error"),
}


class Banner(QFrame):
    """Inline message with word wrap, which is hidden while it has no text.

    Add it to a layout first, because setting a text shows it.

    Signals:
        closed(): the user has pressed the close button.
    """

    closed = Signal()

    def __init__(self, *buttons: QPushButton, name: str = "", close: str = "", parent: QWidget | None = None) -> None:
        """Create a banner with an accessible `name`. There is a close button if `close` gives its name."""
        super().__init__(parent)
        self.setObjectName("card")
        self._buttons = buttons
        self._icon = IconLabel()
        self._severity: Severity | None = None
        self.label = QLabel(wordWrap=True)
        self.setAccessibleName(name)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        row = hbox((self._icon, 0, Qt.AlignmentFlag.AlignVCenter), (self.label, 1), *buttons, margins=(12, 4, 8, 4))
        self.setLayout(row)
        if close:
            row.addWidget(self._make_close_button(close))
        self.hide()

    def show_message(self, text: str, severity: Severity = "warning", *titles: str) -> None:
        """Show `text` and announce it to screen readers. Hide the banner if `text` is empty.

        `titles` are the texts of the buttons. Buttons with an empty text are hidden, and those without a title don't
        change.
        """
        if severity != self._severity:
            self._severity = severity
            self._icon.show_icon(severity, "accent" if severity == "info" else severity, _SPOKEN[severity])
        previous_text, text = self.text(), shorten(text)
        self.label.setText(text)
        for button, title in zip(self._buttons, titles, strict=False):
            if title:
                button.setText(title)
            button.setVisible(bool(title))
        for button in self._buttons:
            if not button.toolTip():
                button.setAccessibleDescription(text)  # screen readers read it when the button gets the focus
        is_new = self.isHidden() or text != previous_text
        self.setVisible(bool(text))
        if is_new and self.isVisible():  # not while the page of the banner is hidden
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    def text(self) -> str:
        return self.label.text()

    def _make_close_button(self, name: str) -> QToolButton:
        button = tool_button(self.hide, icon=icons.icon("close", "muted"), style="flat", name=name)
        button.clicked.connect(self.closed)
        return button


class QuestionBar(Banner):
    """Banner with the buttons `yes` and `no`, which the owner connects. Escape presses `no`."""

    def __init__(self, name: str) -> None:
        """Create a bar with an accessible name."""
        # Buttons need a text before the first question, for screen readers.
        yes, no = QPushButton(tr("Yes")), QPushButton(tr("No"))
        super().__init__(yes, no, name=name)
        self.yes, self.no = yes, no

    def show_note(self, text: str, severity: Severity = "info") -> None:
        """Show `text` without a question. `no` closes the bar, and `yes` is hidden."""
        self.show_message(text, severity, "", tr("Close"))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.no.click()
        else:
            super().keyPressEvent(event)
