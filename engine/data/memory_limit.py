"""How much memory the inspector may take, so that no file of a dataset, however small, takes all that the machine has.

Torch-free. Nothing is limited in a process that has not asked for it, nor elsewhere than on Linux.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

BASE_BYTES = 800 << 20
"""With what Python and its libraries take this stays below 1 GiB."""
OF_TEXT = 16
"""Bytes that are allowed for each byte of annotations: measured are 6 to 12, as Python keeps their numbers and
names."""
OF_ENTRY_BYTES = 1 << 10
"""Bytes that are allowed for each file that a folder lists; its path is kept several times over."""

_STEP_BYTES = 64 << 20


@dataclass
class _Limit:
    """`bytes` is None where nothing is limited; `earned` has been granted since the system's limit was last raised."""

    bytes: int | None = None
    earned: int = 0

    def set(self, limit: int) -> None:
        import resource

        self.bytes, self.earned = limit, 0
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


_LIMIT = _Limit()


def limit_memory() -> None:
    """Lets this process take `BASE_BYTES` more than it has, and what `allow` grants. Beyond it whatever allocates
    raises MemoryError.

    What is mapped from files and only read does not count, nor does address space that is merely reserved.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii")
        data_kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmData:"))
        _LIMIT.set((int(data_kib) << 10) + BASE_BYTES)


def allow_for_text(path: str | os.PathLike[str]) -> None:
    """Grants what reading a file of annotations takes, by what the disk holds of it: holes in it count for nothing."""
    if _LIMIT.bytes is not None:
        info = os.stat(path)
        allow(OF_TEXT * min(info.st_size, 512 * info.st_blocks))


def allow(count: int) -> None:
    """Grants so many bytes more: large datasets take more than small ones."""
    if _LIMIT.bytes is not None:
        _LIMIT.earned += count
        if _LIMIT.earned >= _STEP_BYTES:  # a system call for every file would be felt
            _LIMIT.set(_LIMIT.bytes + _LIMIT.earned)
