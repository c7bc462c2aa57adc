"""Standard streams that are written to a log file and never raise an exception, even on a full disk."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from engine.system import paths

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class _ErrorIgnoringFile(io.FileIO):
    """File that discards output that it can't write, because printing must never stop a training run."""

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _open_ignoring_errors(fd: int) -> TextIO:
    """Return a text stream for the file descriptor `fd`.

    It ignores errors in writing, and is flushed after each line.
    """
    file = io.BufferedWriter(_ErrorIgnoringFile(fd, "w", closefd=False))
    return io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def ignore_output_errors() -> None:
    """Make this process's output streams ignore errors in writing."""
    sys.stdout, sys.stderr = _open_ignoring_errors(1), _open_ignoring_errors(2)


def redirect_output(log: Path) -> None:
    """Append all later output of this process to the file `log`, or discard it if the file can't be opened.

    Standard input is empty from then on.
    """
    null = os.open(os.devnull, os.O_RDWR)
    try:
        output = paths.open_private(str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError:
        output = os.dup(null)
    for fd, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(fd, target)
    os.close(null)
    os.close(output)
    ignore_output_errors()


def exit_now(code: int) -> NoReturn:
    """Flush the output streams, and end the process without finalizing Python.

    Every process that uses PyTorch must end in this way. During finalization, Python ends each thread that asks for the
    interpreter. If a thread of PyTorch asks, for example to release the results of a backward pass, the entire process
    aborts: "terminate called without an active exception".
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
