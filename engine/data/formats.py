"""Which kind of dataset a folder is. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine.data import maskfolder
from engine.data.found import Recognised, nothing, shown, wrong
from engine.data.idx import find_idx
from engine.data.idx_dataset import recognise_idx
from engine.data.imagefolder import recognise_imagefolder, subfolders
from engine.data.maskfolder import recognise_masks

PICTURES_BY_CLASS = ("imagefolder", "idx")


def recognise(folder: str, *, val_fraction: float, seed: int, formats: Sequence[str] = PICTURES_BY_CLASS) -> Recognised:
    """Says what `folder` is among `formats`, from names alone (and idx labels, and what masks hold): pictures are not
    opened."""
    try:
        return _recognised(folder, val_fraction, seed, formats)
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


def _recognised(folder: str, val_fraction: float, seed: int, formats: Sequence[str]) -> Recognised:
    folders = subfolders(folder)
    masked = recognise_masks(folder, folders, val_fraction, seed)
    if "masks" in formats:
        return masked or nothing(wrong(f"{shown(folder)} holds no pictures with masks.", maskfolder.LAYOUT))
    if masked is not None:
        message = f"{shown(folder)} holds pictures with masks, not a folder for each class."
        remedy = "Choose the task Semantic segmentation; or rename the folders, if they are classes."
        return nothing(wrong(message, remedy))
    idx = find_idx(folder)
    if idx is not None:
        return recognise_idx(idx, val_fraction, seed)
    return recognise_imagefolder(folder, folders, val_fraction, seed)
