"""Measure the disk space of a run folder, and the space that deleting it would free."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FolderSize:
    """Sizes of a run folder in bytes: all files, its checkpoints, and the space that deleting it frees.

    Attributes:
        freed_bytes: Disk space that deleting the folder would free. Files with another hard link elsewhere don't count.
    """

    bytes: int = 0
    checkpoint_bytes: int = 0
    freed_bytes: int = 0

    def __add__(self, other: FolderSize) -> FolderSize:
        return FolderSize(
            self.bytes + other.bytes,
            self.checkpoint_bytes + other.checkpoint_bytes,
            self.freed_bytes + other.freed_bytes,
        )


def measure_folder(folder: Path) -> FolderSize:
    """Return the sizes of a run folder. A missing folder and unreadable files count as 0."""
    total = FolderSize()
    for subfolder, _, names in os.walk(folder):
        for name in names:
            try:
                info = os.lstat(os.path.join(subfolder, name))
            except OSError:
                continue
            blocks_of_size = math.ceil(info.st_size / 512)
            blocks = getattr(info, "st_blocks", blocks_of_size)  # Windows does not report blocks
            checkpoint_bytes = info.st_size if Path(subfolder) == folder / "checkpoints" else 0
            total += FolderSize(info.st_size, checkpoint_bytes, 512 * blocks if info.st_nlink == 1 else 0)
    return total
