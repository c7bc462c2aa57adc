"""Counts the files of a folder of which only the user's own program knows what it means, and shows some images among
them. Torch-free."""

from __future__ import annotations

from engine.contract.dataset import Example, SplitReport
from engine.data.decoding.image_files import is_image
from engine.data.decoding.tiff import open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.inspection.base import EXAMPLES, LeaveOut, Looked, Progress, thumbnail
from engine.data.splits import AnySplit, Recognised, spread_evenly


def look_through_any(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Counts the files, and shows some of the images among them."""
    assert isinstance(found.train, AnySplit)
    files = found.train.files
    progress(len(files), len(files))
    looked = Looked([SplitReport("files", {}, total=len(files))])
    images = [path for path in files if is_image(path)]
    for index in spread_evenly(len(images), EXAMPLES)[:EXAMPLES]:
        try:
            with open_to_show(images[index]) as image:
                looked.examples.append(Example("", "files", thumbnail(opaque(image).convert("RGB"))))
        except Exception:
            continue  # a broken file may raise nearly anything; one fewer is shown
    return looked
