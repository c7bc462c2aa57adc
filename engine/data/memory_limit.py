"""Memory limit for the dataset inspector, so that no file can exhaust the memory of the computer. Torch-free.

It applies only to processes that request it, and only on Linux.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

BASE_BYTES = 800 << 20
"""Base limit in bytes. With it, the process stays below 1 GiB including Python and its libraries."""
BYTES_PER_TEXT_BYTE = 16
"""Memory in bytes that is allowed per byte of annotations. Python objects were measured to take 6 to 12 bytes."""
BYTES_PER_FILE = 1 << 10
"""Memory in bytes that is allowed per listed file, whose path is stored several times."""

_STEP_BYTES = 64 << 20


@dataclass
class _Limit:
    """Memory limit in bytes, or None if there is none.

    `earned` counts the bytes that were allowed since the system limit was last raised.
    """

    bytes: int | None = None
    earned: int = 0

    def set(self, limit: int) -> None:
        import resource

        self.bytes, self.earned = limit, 0
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


_LIMIT = _Limit()


def limit_memory() -> None:
    """Limit this process to its present memory use plus `BASE_BYTES`, plus what is added later with `allow`.

    Allocations beyond the limit raise MemoryError. Files mapped for reading and reserved address space are not counted.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii")
        data_kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmData:"))
        _LIMIT.set((int(data_kib) << 10) + BASE_BYTES)


def allow_for_text(path: str | os.PathLike[str]) -> None:
    """Raise the memory limit for reading an annotation file, in proportion to its size on disk.

    Holes in a sparse file are not counted.
    """
    if _LIMIT.bytes is not None:
        info = os.stat(path)
        allow(BYTES_PER_TEXT_BYTE * min(info.st_size, 512 * info.st_blocks))


def allow(count: int) -> None:
    """Raise the memory limit by `count` bytes, since larger datasets need more memory."""
    if _LIMIT.bytes is not None:
        _LIMIT.earned += count
        if _LIMIT.earned >= _STEP_BYTES:  # a system call per file would be slow
            _LIMIT.set(_LIMIT.bytes + _LIMIT.earned)
