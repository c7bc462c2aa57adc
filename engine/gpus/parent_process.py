"""Detect the exit of the parent process, so that the sampler's processes exit, too."""

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
    """Parent of this process, whose exit is detected.

    On Linux, the kernel also sends this process a signal when its parent exits, so that it exits even while it is
    blocked by a full pipe. The kernel sends that signal even if only the *thread* exits that started this process.
    Therefore the signal handler checks if the parent process is alive. Create this object once, on the main thread.
    """

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._process = _find_process(self._pid) if os.name == "nt" else None  # see `alive`
        if sys.platform == "linux":
            signal.signal(signal.SIGUSR2, self._on_signal)
            linux.signal_at_parents_death(signal.SIGUSR2)

    def alive(self) -> bool:
        """Return True while the process that started this one exists."""
        if os.name == "nt":  # on Windows, getppid() keeps the pid of an exited parent
            return self._process is not None and self._process.is_running()
        return os.getppid() == self._pid

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Exit this process, unless only a thread of the parent has exited."""
        if not self.alive():
            os._exit(0)


def end_with_parent(on_line: Callable[[bytes], None] | None = None) -> None:
    """Make this process exit as soon as its parent exits or closes the pipe to standard input.

    It is meant for children of the watchdog, which starts them from its main thread with a pipe as standard input.
    `on_line` is called with each line from the pipe, on a separate thread.
    """
    if sys.platform == "linux":  # SIGKILL exists on POSIX only
        linux.signal_at_parents_death(signal.SIGKILL)
    threading.Thread(target=_exit_at_end_of_input, args=(on_line,), name="parent", daemon=True).start()


def read_lines(on_line: Callable[[bytes], None]) -> None:
    """Call `on_line` with each line of standard input until it is closed."""
    partial_line = b""
    while data := os.read(0, 4096):
        *lines, partial_line = (partial_line + data).split(b"\n")
        for line in lines:
            on_line(line)


def _exit_at_end_of_input(on_line: Callable[[bytes], None] | None) -> None:
    """Pass the lines of standard input to `on_line`, and exit this process at their end or after an error."""
    try:
        read_lines(on_line or (lambda line: None))
    finally:
        os._exit(0)


def _find_process(pid: int) -> psutil.Process | None:
    """Return the process with this pid, or None if there is none or it can't be inspected."""
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None
