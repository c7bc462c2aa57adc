"""Private cache folders for compiled code.

Without them, torch.compile runs code from a folder in the shared temporary folder. Any user can predict its name and
create it first.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from engine.system import paths

FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "QUACK_CACHE_DIR": "quack"}
"""Names of the cache folders, by the environment variable that sets their path.

They are for torch.compile, Triton, and the QuACK kernels that torch includes.
"""


def use_private_folders() -> str:
    """Make this process and its children cache compiled code in private folders. Return a warning for the user, or "".

    The folders are in Footplate's cache. If other users can write to the cache, a private folder next to the runs'
    sockets is used instead, and the warning says so. This must be called before torch is imported, since torch then
    chooses its folder. Call `torch_compat.keep_compiled_in` once torch is imported.

    Raises:
        OSError: There is no private folder.
    """
    folders, warning = _choose_folders(paths.cache_folder())
    os.environ.update(folders)
    return warning


@lru_cache
def _choose_folders(cache: Path) -> tuple[dict[str, str], str]:
    """Create the folders for compiled code below `cache`, or below the runtime folder if others can write to `cache`.

    Return their paths by environment variable, and for the runtime folder a warning to the user, otherwise "".
    """
    try:
        return _make_folders(cache), ""
    except OSError as error:
        runtime_folder = paths.runtime_folder()
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        warning = (
            f"Compiled code is kept in {runtime_folder / 'compiled'} for now: {reason}. Set FOOTPLATE_CACHE to a folder "
            "that you own."
        )
        return _make_folders(runtime_folder), warning


def _make_folders(root: Path) -> dict[str, str]:
    """Create the folders for compiled code below `root`, and return their paths by environment variable.

    Raises OSError if this fails or if others can write to one of them.
    """
    return {variable: str(paths.make_trusted_folder(root / "compiled" / name)) for variable, name in FOLDERS.items()}
