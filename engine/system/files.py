"""Reading of settings, run folders and results, with size limits, since they may come from other people.

All such files are read here. A file that is not regular, or is longer than expected, raises OSError. Files of datasets
are read with `engine.system.regular_files`, whose errors include a remedy.
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
"""Maximum size of settings, jobs, notes and other small files, in bytes."""
MAX_RESULT_BYTES = 1 << 30
"""Maximum size of a model's or a trial's results, in bytes."""
MAX_LINE_BYTES = 1 << 20
"""Maximum length of a line in a log, in bytes."""
MAX_DAMAGED_BYTES = 1 << 24
"""Maximum length of a damaged line in a log, in bytes. A longer line ends the log."""


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file for reading. Another process may still be writing to it. Raises OSError."""
    return open(path, "rb", opener=_open_descriptor)


def read_file(path: Path | str, at_most: int = MAX_BYTES) -> bytes:
    """Read a regular file. Raises OSError, also for a file that is longer than `at_most` bytes."""
    with open_file(path) as stream:
        length = os.fstat(stream.fileno()).st_size
        if length > at_most:
            raise OSError(errno.EFBIG, f"it has {length:,} bytes; the maximum is {at_most:,}", str(path))
        return stream.read(length)


def read_end(path: Path | str, at_most: int) -> bytes:
    """Read the last `at_most` bytes of a regular file, or all of a shorter one. Raises OSError."""
    with open_file(path) as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - at_most))
        return stream.read(at_most)


def iterate_complete_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream with their line breaks. An incomplete last line is left out.

    A line longer than `MAX_LINE_BYTES`, which only damage can cause, is yielded in parts. A line longer than
    `MAX_DAMAGED_BYTES` ends the iteration.
    """
    parts: list[bytes] = []
    while (part := stream.readline(MAX_LINE_BYTES)) and len(parts) * MAX_LINE_BYTES < MAX_DAMAGED_BYTES:
        parts.append(part)
        if part.endswith(b"\n"):
            yield from parts
            parts.clear()


def _open_descriptor(path: str, _flags: int) -> int:
    """Open a regular file for reading. It is an `opener` for `open`, whose flags it ignores.

    Raises OSError, also for files of other types.
    """
    try:
        return open_descriptor(path, may_grow=True)  # a file that is empty now may be a log that is being written
    except UnusableFile as error:
        raise OSError(errno.EINVAL, str(error), path) from None
