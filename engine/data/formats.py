"""Which kind of dataset a folder is. Torch-free."""

from __future__ import annotations

import os

from engine.data.found import Recognised, nothing, shown, wrong
from engine.data.idx import find_idx
from engine.data.idx_dataset import recognise_idx
from engine.data.imagefolder import recognise_imagefolder, subfolders


def recognise(folder: str, *, val_fraction: float, seed: int) -> Recognised:
    """Says what `folder` is, from names alone (and idx labels): pictures are not opened."""
    try:
        folders = subfolders(folder)
        idx = find_idx(folder)
        if idx is not None:
            return recognise_idx(idx, val_fraction, seed)
        return recognise_imagefolder(folder, folders, val_fraction, seed)
    except FileNotFoundError:
        return nothing(wrong(f"There is no folder {shown(folder)}.", "Check the spelling, or browse for it."))
    except NotADirectoryError:
        return nothing(wrong(f"{shown(folder)} is a file, not a folder.", "Choose the folder that holds the pictures."))
    except PermissionError as error:
        where = shown(os.fsdecode(error.filename or folder))
        return nothing(wrong(f"{where} may not be read.", "Give yourself permission to read it, or choose another."))
    except OSError as error:
        return nothing(
            wrong(f"{shown(folder)} cannot be read: {error.strerror}.", "Check the disk, or choose another.")
        )
