"""Measure the disk space of a run folder, and the space that deleting it would free."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holding:
    """Sizes of a folder.

    Attributes:
        bytes: Size of all files.
        checkpoint_bytes: Size of the checkpoints.
        freed_bytes: Disk space that deleting the folder would free. Files with another hard link elsewhere don't count.
    """

    bytes: int = 0
    checkpoint_bytes: int = 0
    freed_bytes: int = 0

    def __add__(self, other: Holding) -> Holding:
        return Holding(
            self.bytes + other.bytes,
            self.checkpoint_bytes + other.checkpoint_bytes,
            self.freed_bytes + other.freed_bytes,
        )


def holding(folder: Path) -> Holding:
    """Measure a run folder. A missing folder and unreadable files count as 0."""
    total = Holding()
    for where, _folders, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(where, name))
            except OSError:
                continue
            # Windows does not report the number of blocks of a file.
            room = getattr(info, "st_blocks", -(-info.st_size // 512)) * 512 if info.st_nlink == 1 else 0
            checkpoint = info.st_size if Path(where) == folder / "checkpoints" else 0
            total += Holding(info.st_size, checkpoint, room)
    return total
