"""Bounded reading of settings, run folders and results, which may come from anybody.

The only way to read such files: what is no regular file, or is longer than expected, is an OSError. Files of datasets
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
"""Limit of settings, jobs, notes and other records."""
MAX_RESULT_BYTES = 1 << 30
"""Limit of what models and trials have computed."""
MAX_LINE_BYTES = 1 << 20
"""Limit of a line of a log."""
MAX_DAMAGED_BYTES = 1 << 24
"""Limit of a damaged line of a log, which is skipped."""


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file, which may grow. Raises OSError."""
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
    """Yield lines with their ends, up to a torn last line or one longer than `MAX_DAMAGED_BYTES`.

    A line longer than `MAX_LINE_BYTES`, which only damage can make, is yielded in parts.
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
