"""A folder of which only the user's own program knows what it means: its files are counted, and pictures among them shown.
Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from engine.contract.dataset import Example, SplitReport
from engine.data.decoding.tiff import open_to_show
from engine.data.formats.imagefolder import is_picture
from engine.data.inspection.base import EXAMPLES, LeaveOut, Looked, Progress, thumbnail
from engine.data.splits import AnySplit, Recognised, nothing, shown, spread_evenly, wrong

LAYOUT = "Give the folder that your own program reads."


def recognise_any(folder: str, folders: Sequence[str], val_fraction: float, seed: int) -> Recognised:
    """All visible files below `folder`, whatever they are; links to folders are not followed."""
    files = list(_files(folder))
    if not files:
        return nothing(wrong(f"{shown(folder)} is empty.", LAYOUT))
    return Recognised("files", train=AnySplit(files))


def _files(folder: str) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(names) if not name.startswith("."))


def look_through_any(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Counts the files, and shows some of the pictures among them."""
    assert isinstance(found.train, AnySplit)
    files = found.train.files
    progress(len(files), len(files))
    looked = Looked([SplitReport("files", {}, total=len(files))])
    pictures = [path for path in files if is_picture(path)]
    for place in spread_evenly(len(pictures), EXAMPLES)[:EXAMPLES]:
        try:
            with open_to_show(pictures[place]) as image:
                looked.examples.append(Example("", "files", thumbnail(image.convert("RGB"))))
        except Exception:
            continue  # a broken file may raise nearly anything; one fewer is shown
    return looked
