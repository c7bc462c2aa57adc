"""Size limit for the cache of decoded images, which `engine.data.cache.cache_space` enforces."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.system import paths
from engine.system.files import read_file

LIMIT_VARIABLE = "FOOTPLATE_CACHE_LIMIT_GIB"
GIB = 1 << 30
DEFAULT_LIMIT_BYTES = 64 * GIB
"""Default limit in bytes on a large disk. On smaller disks, it is a tenth of the disk.

It is half of the space that ImageNet takes at 256 px with three channels.
"""


def images_folder() -> Path:
    """Return the folder of the cache of decoded images."""
    return paths.cache_folder() / "pictures"


def limit_file() -> Path:
    """Return the path of the file with the cache's size limit that the user has set, in bytes."""
    return images_folder() / "limit"


def limit_bytes() -> int:
    """Return the size limit of the cache of decoded images in bytes.

    It is taken from the environment variable `LIMIT_VARIABLE` or, if that is not set, from `limit_file`. Without
    either, it is `default_limit_bytes`.

    Raises:
        ValueError: The environment variable is not a number.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if text is not None:
        try:
            return int(float(text) * GIB)
        except (ValueError, OverflowError):
            raise ValueError(f"{LIMIT_VARIABLE} is “{text}”, not a number of GiB") from None
    try:
        return int(read_file(limit_file()).decode())
    except (OSError, ValueError):
        return default_limit_bytes()


def default_limit_bytes() -> int:
    """Return the default size limit of the cache in bytes: `DEFAULT_LIMIT_BYTES`, but at most a tenth of its disk."""
    folder = images_folder()
    parent = next(existing for existing in (folder, *folder.parents) if existing.exists())  # on the same disk
    return min(DEFAULT_LIMIT_BYTES, shutil.disk_usage(parent).total // 10)
