"""No process of the sampler outlives the one that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

import psutil

from engine.system import linux


class Parent:
    """The process that started this one, watched from now on.

    On Linux the kernel also signals this process when its parent ends, so that even a write that blocks on a
    full pipe is left. The kernel sends that signal when the parent's *thread* that started us ends, too, so the
    handler looks whether the process is really gone. Only one may be made, on the main thread.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._process = _process(self._pid) if os.name == "nt" else None
        if sys.platform == "linux":
            signal.signal(signal.SIGUSR2, self._on_signal)
            linux.signal_at_parents_death(signal.SIGUSR2)

    def alive(self) -> bool:
        """Whether the parent still runs."""
        if os.name == "nt":  # Windows keeps telling a dead parent's pid
            return self._process is not None and self._process.is_running()
        return os.getppid() == self._pid

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if not self.alive():
            os._exit(0)


def end_with_parent(take: Callable[[bytes], None] | None = None) -> None:
    """Ends this process, whatever it is doing, as soon as the parent ends or closes our standard input.

    For children of the watchdog, which start from its main thread and hold a pipe as their standard input. `take` is
    given each line that comes through it, on a thread of its own.
    """
    if sys.platform == "linux":  # elsewhere there is no SIGKILL to name
        linux.signal_at_parents_death(signal.SIGKILL)
    threading.Thread(target=_exit_at_end_of_input, args=(take,), name="lifeline", daemon=True).start()


def take_lines(take: Callable[[bytes], None]) -> None:
    """Gives `take` each line of our standard input, until that ends."""
    rest = b""
    while data := os.read(0, 4096):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            take(line)


def _exit_at_end_of_input(take: Callable[[bytes], None] | None) -> None:
    try:
        take_lines(take or (lambda line: None))
    finally:
        os._exit(0)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
