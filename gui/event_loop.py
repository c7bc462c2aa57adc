"""Garbage collection and process signals in the event loop of the GUI thread."""

from __future__ import annotations

import gc
import signal
import socket

from PySide6.QtCore import QObject, QSocketNotifier, QTimer, Signal

_INTERVAL_MS = 1000
_FULL_EVERY = 60
"""Number of quick collections of young objects for each full collection, which takes 0.1 s with a day of history."""


class GarbageCollector(QObject):
    """Timer that collects garbage in the thread that created it, in place of Python's automatic collection.

    The automatic collection may run in any thread, and must not delete Qt objects outside of the GUI thread.
    """

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._timer = QTimer(self, interval=_INTERVAL_MS)
        self._timer.timeout.connect(self.collect)
        self._timer.start()
        gc.disable()

    def collect(self) -> None:
        """Collect young objects or, in every `_FULL_EVERY`-th call, all objects."""
        self._count += 1
        gc.collect(2 if self._count % _FULL_EVERY == 0 else 1)

    def close(self) -> None:
        """Enable Python's automatic collection again."""
        self._timer.stop()
        gc.enable()


class Interruptions(QObject):
    """Converter of SIGINT and SIGTERM to a Qt signal. Python handles signals only while it runs Python code.

    Signals:
        interrupted(): the process has received SIGINT or SIGTERM.
    """

    interrupted = Signal()

    def __init__(self, parent: QObject) -> None:
        """Take over SIGINT and SIGTERM. A socket reports them, because Python calls no handlers while Qt waits."""
        super().__init__(parent)
        self._read, self._write = socket.socketpair()
        for endpoint in (self._read, self._write):
            endpoint.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            # The socket reports only signals with a handler in Python. This one has nothing to do.
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(self._write.fileno())
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._on_readable)

    def _on_readable(self) -> None:
        self._read.recv(64)  # the numbers of the signals
        self.interrupted.emit()
