"""Signals to a process that waits on a selector."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable
from types import FrameType

PAUSING = "SIGUSR1"


class Signals:
    """Has `on_signal` called from within the selector's loop with the name of each signal that asks for an end; of
    them SIGUSR1 is what schedulers warn by.
    """

    def __init__(self, selector: selectors.BaseSelector, on_signal: Callable[[str], None]) -> None:
        self._on_signal = on_signal
        self._noted: list[int] = []
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for name in ("SIGTERM", "SIGINT", PAUSING):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._note)
        selector.register(self._wakeup, selectors.EVENT_READ, self._wake_up)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        """Between any two instructions of the loop: so it is only noted, and the loop is woken."""
        self._noted.append(number)

    def _wake_up(self, _mask: int) -> None:
        self._wakeup.recv(4096)
        while self._noted:
            self._on_signal(signal.Signals(self._noted.pop(0)).name)
