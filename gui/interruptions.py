"""Ctrl+C in the terminal, and a session's end, close the window in good order."""

from __future__ import annotations

import signal
import socket

from PySide6.QtCore import QObject, QSocketNotifier, Signal


class Interruptions(QObject):
    """Turns SIGINT and SIGTERM into a Qt signal. Python alone would see them only when it next runs some Python.

    Signals: interrupted() - the process was asked to end.
    """

    interrupted = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):
            end.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._write.fileno())
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._heard)

    def _heard(self) -> None:
        self._read.recv(64)
        self.interrupted.emit()
