"""How much the cache of decoded images may hold, as anyone may read it; `engine.data.cache.cache_space` keeps to it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.system import paths

LIMIT_VARIABLE = "FOOTPLATE_CACHE_LIMIT_GIB"
GIB = 1 << 30
DEFAULT_LIMIT_BYTES = 64 * GIB
"""Half of ImageNet at 256 px and three channels; on a small disk, a tenth of it."""


def images_folder() -> Path:
    """Where the decoded images are."""
    return paths.cache_folder() / "pictures"


def limit_file() -> Path:
    """Where a limit that the user has chosen stands, in bytes."""
    return images_folder() / "limit"


def limit_bytes() -> int:
    """How much all images together may take: LIMIT_VARIABLE, or what `limit_file` says, or the default. Raises
    ValueError where the variable is no number; its text says so.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if text is not None:
        try:
            return int(float(text) * GIB)
        except (ValueError, OverflowError):
            raise ValueError(f"{LIMIT_VARIABLE} is “{text}”, not a number of GiB") from None
    try:
        return int(limit_file().read_text())
    except (OSError, ValueError):
        return default_limit_bytes()


def default_limit_bytes() -> int:
    """The limit where nobody has chosen one: a tenth of the disk at most."""
    folder = images_folder()
    there = next(existing for existing in (folder, *folder.parents) if existing.exists())
    return min(DEFAULT_LIMIT_BYTES, shutil.disk_usage(there).total // 10)
