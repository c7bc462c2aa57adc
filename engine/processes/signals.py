"""Signals that ask this process to stop, which the loop of its selector handles."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable
from types import FrameType

PAUSING = "SIGUSR1"
"""Name of the signal that schedulers send shortly before the time limit of a job."""


class Signals:
    """Handlers for SIGTERM, SIGINT and `PAUSING`. The selector's loop calls `on_signal` with the name of the signal."""

    def __init__(self, selector: selectors.BaseSelector, on_signal: Callable[[str], None]) -> None:
        self._on_signal = on_signal
        self._received: list[int] = []  # numbers of signals that were not passed on yet
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for name in ("SIGTERM", "SIGINT", PAUSING):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._receive)
        selector.register(self._reader, selectors.EVENT_READ, self._deliver_received)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        """Record a signal, which may arrive at any time. Python's wakeup file descriptor wakes the selector's loop."""
        self._received.append(number)

    def _deliver_received(self, _mask: int) -> None:
        """Call `on_signal` for each recorded signal. The loop of the selector calls this."""
        self._reader.recv(4096)
        while self._received:
            self._on_signal(signal.Signals(self._received.pop(0)).name)
