"""Memory limit for the dataset inspector, so that no file can exhaust the memory of the computer. Torch-free.

It applies only to processes that request it, and only on Linux.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

BASE_BYTES = 800 << 20
"""Memory in bytes that the process may use in addition to Python and its libraries. All of it stays below 1 GiB."""
BYTES_PER_TEXT_BYTE = 16
"""Bytes added to the limit for each byte of annotations. In measurements, Python objects took 6 to 12 bytes."""
BYTES_PER_FILE = 1 << 10
"""Bytes added to the memory limit for each file that a folder lists. Its path is stored several times."""

_STEP_BYTES = 64 << 20


@dataclass
class _Limit:
    """Memory limit of this process.

    `bytes` is the limit that was last set in the operating system, or None without a limit. `pending` is the sum of
    later increases that have not been set yet. Small increases are collected to save system calls.
    """

    bytes: int | None = None
    pending: int = 0

    def set(self, limit: int) -> None:
        """Limit the data memory of this process to `limit` bytes, or to its hard limit in the system if that is lower."""
        import resource

        self.bytes, self.pending = limit, 0
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


_LIMIT = _Limit()


def limit_memory() -> None:
    """Limit the memory of this process to its present use plus `BASE_BYTES`. `allow` raises the limit later.

    Allocations beyond the limit raise MemoryError. Files mapped for reading and reserved address space are not counted.
    Only Linux is supported, and the function does nothing on other systems.
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
    """Raise the memory limit of this process by `count` bytes, for example to read a larger dataset.

    Does nothing without a limit.
    """
    if _LIMIT.bytes is not None:
        _LIMIT.pending += count
        if _LIMIT.pending >= _STEP_BYTES:  # a system call per file would be slow
            _LIMIT.set(_LIMIT.bytes + _LIMIT.pending)
