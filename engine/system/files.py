"""Reading of settings, run folders and results with size limits, since they may come from other people.

All such files are read here: a file that is not regular, or longer than expected, raises OSError. For files of
datasets, use `engine.system.regular_files`, whose errors include a remedy.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO

from engine.system.regular_files import UnusableFile, open_descriptor

MAX_BYTES = 16 << 20
"""Maximum size of settings, jobs, notes and other records in bytes."""
MAX_RESULT_BYTES = 1 << 30
"""Maximum size of results of models and trials in bytes."""
MAX_LINE_BYTES = 1 << 20
"""Maximum length of a log line in bytes."""
MAX_DAMAGED_BYTES = 1 << 24
"""Maximum length of a damaged log line in bytes. Longer ones end the log."""


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file, which may still grow. Raises OSError."""
    return open(path, "rb", opener=_open_descriptor)


def read_file(path: Path | str, at_most: int = MAX_BYTES) -> bytes:
    """Read a regular file. Raises OSError, also if it is longer than `at_most` bytes."""
    with open_file(path) as stream:
        length = os.fstat(stream.fileno()).st_size
        if length > at_most:
            raise OSError(errno.EFBIG, f"it has {length:,} bytes; the maximum is {at_most:,}", str(path))
        return stream.read(length)


def read_end(path: Path | str, at_most: int) -> bytes:
    """Read the last `at_most` bytes of a regular file. Raises OSError."""
    with open_file(path) as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - at_most))
        return stream.read(at_most)


def complete_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield lines with their line breaks, until an incomplete last line or one longer than `MAX_DAMAGED_BYTES`.

    A line longer than `MAX_LINE_BYTES`, which only damage can cause, is yielded in parts.
    """
    parts: list[bytes] = []
    while (part := stream.readline(MAX_LINE_BYTES)) and len(parts) * MAX_LINE_BYTES < MAX_DAMAGED_BYTES:
        parts.append(part)
        if part.endswith(b"\n"):
            yield from parts
            parts.clear()


def _open_descriptor(path: str, _flags: int) -> int:
    try:
        return open_descriptor(path, may_grow=True)
    except UnusableFile as error:
        raise OSError(errno.EINVAL, str(error), path) from None
