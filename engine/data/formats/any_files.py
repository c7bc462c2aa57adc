"""A folder of which only the user's own program knows what it means. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from engine.data.splits import AnySplit, Recognised, nothing, shown, wrong

LAYOUT = "Give the folder that your own program reads."


def recognise_any(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised:
    """All visible files below `folder`, whatever they are; links to folders are not followed."""
    files = list(_files(folder))
    if not files:
        return nothing(wrong(f"{shown(folder)} is empty.", LAYOUT))
    return Recognised("files", train=AnySplit(files))


def _files(folder: str) -> Iterator[str]:
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(where, name) for name in sorted(names) if not name.startswith("."))
