"""The interface of a desktop notification channel, and the channel through the system tray."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QSystemTrayIcon


class Channel(QObject):
    """A way to show notifications on the desktop.

    Signals: pressed() - the user pressed a notification that was sent through this.
    """

    pressed = Signal()

    def send(self, title: str, text: str, answer: Callable[[str], None]) -> None:
        """Shows a notification and, now or later, answers in words why it could not, "" where it could."""
        raise NotImplementedError


class TrayChannel(Channel):
    """Through an icon in the system tray, which is there from the first notification on."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._icon = QSystemTrayIcon(QApplication.windowIcon(), self)
        self._icon.setToolTip("Footplate")
        self._icon.messageClicked.connect(self.pressed)
        self._icon.activated.connect(lambda _reason: self.pressed.emit())

    def send(self, title: str, text: str, answer: Callable[[str], None]) -> None:
        self._icon.show()
        self._icon.showMessage(title, text, QSystemTrayIcon.MessageIcon.Warning)
        answer("")
