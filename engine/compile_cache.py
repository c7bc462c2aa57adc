"""Where compiled code is kept to be run again: in folders that nobody else can have written to.

torch.compile would keep it in the temporary folder that all users share, under a name that anybody can take first, and
runs what it finds there.
"""

from __future__ import annotations

import os
from pathlib import Path

from engine.contract import paths

FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "QUACK_CACHE_DIR": "quack"}
"""By environment variable: torch.compile's own, Triton's, and that of the kernels that torch vendors from QuACK."""


def keep_private() -> str:
    """Sets this process's caches of compiled code, to be called before anything is compiled: to Footplate's cache folder,
    or to where the environment says.

    One that other users can write to is not used, but a folder beside the runs' sockets, which is the user's alone; why,
    with the remedy, is then returned. Raises OSError where there is no private folder at all.
    """
    why = ""
    for variable, name in FOLDERS.items():
        chosen = os.environ.get(variable)
        try:
            folder = paths.trusted_folder(Path(chosen) if chosen else paths.cache_folder() / "compiled" / name)
        except OSError as error:
            folder = paths.trusted_folder(paths.runtime_folder() / "compiled" / name)
            remedy = f"Set {variable if chosen else 'FOOTPLATE_CACHE'} to a folder of your own."
            why = f"Compiled code is kept in {folder.parent} for now: {_words(error)}. {remedy}"
        os.environ[variable] = str(folder)
    return why


def _words(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
