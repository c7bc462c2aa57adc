"""Private cache folders for compiled code.

By default, torch.compile runs code from a folder in the shared temporary folder, under a name that any user can create
first.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from engine.system import paths

FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "QUACK_CACHE_DIR": "quack"}
"""Folder names by environment variable: for torch.compile, Triton, and the QuACK kernels that torch includes."""


def use_private_folders() -> str:
    """Set the caches of this process and its children to folders in Footplate's cache. Return a warning or "".

    Call it before importing torch, which then chooses its folder, and call `torch_compat.keep_compiled_in` afterwards.
    If other users can write to the cache, a private folder next to the runs' sockets is used, and the warning says so.

    Raises:
        OSError: There is no private folder.
    """
    folders, warning = _choose(paths.cache_folder())
    os.environ.update(folders)
    return warning


@lru_cache
def _choose(cache: Path) -> tuple[dict[str, str], str]:
    """Return the folders by environment variable, and a warning if they are outside the cache."""
    try:
        return _folders(cache), ""
    except OSError as error:
        folders = _folders(paths.runtime_folder())
        words = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        where = paths.runtime_folder() / "compiled"
        return (
            folders,
            f"Compiled code is kept in {where} for now: {words}. Set FOOTPLATE_CACHE to a folder that you own.",
        )


def _folders(root: Path) -> dict[str, str]:
    return {variable: str(paths.trusted_folder(root / "compiled" / name)) for variable, name in FOLDERS.items()}
