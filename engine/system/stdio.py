"""Standard streams that go to a file on the run's disk, and that a full disk does not turn into exceptions."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from engine.system import paths

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class _ForgivingFile(io.FileIO):
    """Drops what cannot be written, since a print must never end a training."""

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def forgiving(fd: int) -> TextIO:
    """A text stream on `fd`, flushed by line."""
    file = io.BufferedWriter(_ForgivingFile(fd, "w", closefd=False))
    return io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def make_forgiving() -> None:
    """Makes this process's output streams forgiving."""
    sys.stdout, sys.stderr = forgiving(1), forgiving(2)


def redirect(log: Path) -> None:
    """In a forked child: nothing comes in, and all that is printed goes to the end of `log`."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        output = paths.for_the_user_alone(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        output = os.dup(null)
    for fd, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(fd, target)
    os.close(null)
    os.close(output)
    make_forgiving()
