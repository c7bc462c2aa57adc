"""Interface of desktop notification channels, and the channel that uses the system tray."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QSystemTrayIcon


class Channel(QObject):
    """Base class of channels that show desktop notifications.

    Signals:
        pressed(): the user has clicked a notification of this channel.
    """

    pressed = Signal()

    def send(self, title: str, text: str, answer: Callable[[str], None]) -> None:
        """Show a notification. `answer` is called now or later, with an error message or "" for success."""
        raise NotImplementedError


class TrayChannel(Channel):
    """Channel that uses an icon in the system tray, which appears with the first notification."""

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
