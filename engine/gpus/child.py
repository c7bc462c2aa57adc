"""Child process that runs a Python module and exchanges lines with this process. No call waits for the child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque

MAX_LINES = 1000
"""Maximum number of unread lines. If there are more, the oldest ones are dropped."""


class LineChild:
    """Child process `python -m module *arguments`. A thread collects the lines that it prints.

    `changed` is set when a line has arrived or the child has exited. No method waits for the child, since SIGKILL can't
    stop a process that is stuck in a driver call.
    """

    def __init__(self, module: str, *arguments: str, changed: threading.Event) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # Windows would show a console
        )
        assert self._process.stdin is not None
        if os.name != "nt":  # Python can't make pipes non-blocking on Windows
            os.set_blocking(self._process.stdin.fileno(), False)
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._changed = changed
        self._has_ended = False
        threading.Thread(target=self._collect_lines, name=f"lines of {module}", daemon=True).start()

    def take_lines(self) -> list[bytes]:
        """Remove and return the lines that have arrived since the last call."""
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        return lines

    def send(self, line: bytes) -> None:
        """Send a line to the child. The line is dropped if the child has exited or its pipe is full."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (OSError, ValueError):  # ValueError: the thread has closed the pipe of an exited child
            return

    def has_ended(self) -> bool:
        """Return True if the child has exited and all its lines have arrived."""
        return self._has_ended

    def exit_reason(self) -> str | None:
        """Return why the child has exited, e.g. "exit code 1" or "SIGABRT", or None for a normal exit."""
        code = self._process.returncode
        if not code:
            return None
        if code > 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def kill(self) -> None:
        """Kill the child without waiting for its exit. Poll `has_ended` to learn when it has exited."""
        self._process.kill()

    def _collect_lines(self) -> None:
        """Collect the child's output, in a thread, until the child exits."""
        with self._process as process:  # closes the pipes and waits for the process
            assert process.stdout is not None
            for line in process.stdout:
                self._lines.append(line)
                self._changed.set()
        self._has_ended = True
        self._changed.set()
