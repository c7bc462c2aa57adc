"""Where compiled code is kept to be run again: in folders that nobody else can have written to.

torch.compile would keep it in the temporary folder that all users share, under a name that anybody can take first, and
runs what it finds there.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.system import paths

FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "QUACK_CACHE_DIR": "quack"}
"""By environment variable: torch.compile's own, Triton's, and that of the kernels that torch vendors from QuACK."""


def keep_private() -> str:
    """Sets this process's caches of compiled code, and its children's, to folders in Footplate's own cache. To be
    called before torch is imported, which chooses one then, and is to be told of it (`torch_compat.keep_compiled_in`).

    Where other users can write to that cache, a folder beside the runs' sockets is used, which is the user's alone;
    why, with the remedy, is then returned. Raises OSError where there is no private folder at all.
    """
    why = ""
    try:
        folders = _folders(paths.cache_folder())
    except OSError as error:
        folders = _folders(paths.runtime_folder())
        words = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        where = paths.runtime_folder() / "compiled"
        why = f"Compiled code is kept in {where} for now: {words}. Set FOOTPLATE_CACHE to a folder that you own."
    os.environ.update(folders)
    return why


def _folders(root: Path) -> dict[str, str]:
    return {variable: str(paths.trusted_folder(root / "compiled" / name)) for variable, name in FOLDERS.items()}
