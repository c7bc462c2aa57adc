"""Inspection of files for a program of the user's: number of files, and images among them. Torch-free."""

from __future__ import annotations

from engine.contract.dataset import Example, SplitReport
from engine.data.decoding.image_files import is_image
from engine.data.decoding.tiff import open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.inspection.base import EXAMPLES, Inspection, LeaveOut, Progress, thumbnail
from engine.data.splits import AnySplit, RecognizedDataset, spread_evenly


def inspect_any_files(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Count the files, and take examples from the images among them."""
    assert isinstance(found.train, AnySplit)
    files = found.train.files
    progress(len(files), len(files))
    result = Inspection([SplitReport("files", {}, total=len(files))])
    images = [path for path in files if is_image(path)]
    for index in spread_evenly(len(images), EXAMPLES)[:EXAMPLES]:
        try:
            with open_to_show(images[index]) as image:
                result.examples.append(Example("", "files", thumbnail(opaque(image).convert("RGB"))))
        except Exception:
            continue  # a broken file may raise nearly anything; one fewer is shown
    return result
