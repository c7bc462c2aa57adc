"""A Python module running as a child process that prints lines, is told some, and may hang for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque

MAX_LINES = 1000
"""Lines kept while nobody takes them; older ones are dropped."""


class LineChild:
    """A child running `python -m module *arguments`, with its lines taken as they come.

    `news` is set when a line came or the child ended. Nothing here waits for the child, since a process that
    is stuck in a driver call does not even die by SIGKILL.
    """

    def __init__(self, module: str, *arguments: str, news: threading.Event) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # Windows would show a console
        )
        assert self._process.stdin is not None
        if os.name != "nt":
            os.set_blocking(self._process.stdin.fileno(), False)
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)
        self._news = news
        self._ended = False
        threading.Thread(target=self._take_lines, name=f"lines of {module}", daemon=True).start()

    def lines(self) -> list[bytes]:
        """The lines that came since the last call."""
        taken = []
        while self._lines:
            taken.append(self._lines.popleft())
        return taken

    def tell(self, line: bytes) -> None:
        """Writes a line to the child's standard input. Nothing happens where it has ended, or has not read for long."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (OSError, ValueError):
            return

    def ended(self) -> bool:
        """Whether the process is gone and no more lines can come."""
        return self._ended

    def cause_of_end(self) -> str | None:
        """How an ended child ended, None if in order."""
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
        """Kills the child without waiting for its end; `ended` tells when it has come."""
        self._process.kill()

    def _take_lines(self) -> None:
        with self._process as process:  # on leaving it closes the pipes and takes leave of the process
            assert process.stdout is not None
            for line in process.stdout:
                self._lines.append(line)
                self._news.set()
        self._ended = True
        self._news.set()
