"""Reading of settings, run folders and results with limits, since they may come from anybody.

All such files are read here: a file that is not regular, or is longer than expected, raises OSError. Files of datasets
are opened by `engine.system.regular_files`, whose errors name the remedy.
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
"""Limit on the size of settings, jobs, notes and other records, in bytes."""
MAX_RESULT_BYTES = 1 << 30
"""Limit on the size of results of models and trials, in bytes."""
MAX_LINE_BYTES = 1 << 20
"""Limit on the length of a line in a log, in bytes."""
MAX_DAMAGED_BYTES = 1 << 24
"""Limit on the length of a damaged line in a log, which is skipped, in bytes."""


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file, which may grow. Raises OSError."""
    return open(path, "rb", opener=_open_descriptor)


def read_file(path: Path | str, at_most: int = MAX_BYTES) -> bytes:
    """Read a regular file. Raises OSError, even if it is only longer than `at_most` bytes."""
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
    """Yield lines with their line breaks, up to a torn last line or one longer than `MAX_DAMAGED_BYTES`.

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
