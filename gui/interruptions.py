"""Clean shutdown on SIGINT, SIGTERM and the end of the session."""

from __future__ import annotations

import signal
import socket

from PySide6.QtCore import QObject, QSocketNotifier, Signal


class Interruptions(QObject):
    """Converter of SIGINT and SIGTERM to a Qt signal, because Python handles signals only while it runs Python code.

    Signals:
        interrupted(): The process was asked to exit.
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
        self._notifier.activated.connect(self._on_readable)

    def _on_readable(self) -> None:
        self._read.recv(64)
        self.interrupted.emit()
