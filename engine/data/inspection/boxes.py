"""Looks folders of images with boxes through: which images cannot be used, how many boxes of each class there are and
how large, and what the images look like with them. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from engine.contract.dataset import Example
from engine.data.decoding.reading import folder_channels
from engine.data.drawing import outline, png
from engine.data.formats.boxes import BoxSplit
from engine.data.inspection.base import EXAMPLE_SIDE, LeaveOut, Looked, Progress, Tally, splits_of
from engine.data.inspection.objects import (
    Objects,
    decoded_indices,
    example_indices,
    judge,
    look_at,
    needs_decoding,
    only_class,
    report,
    shrunk,
)
from engine.data.splits import Recognised


def look_through_boxes(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every image of `found`, whose splits are of boxes."""
    splits = splits_of(found, BoxSplit)
    looked = Looked(channels=folder_channels(*(split.files for _, split in splits)))
    tally = Tally(sum(len(split.files) for _, split in splits), progress, leave_out)
    for name, split in splits:
        sampled = decoded_indices(len(split.files))
        usable = list(tally.seen(split.files, partial(_see, split, sampled), threads))
        objects = _objects(split, usable)
        of_split = report(name, found.classes, objects, len(usable), made=split.made)
        looked.splits.append(of_split)
        looked.problems += judge(name, of_split, objects, len(usable), "boxes")
        if name == "train":
            looked.examples += _examples(name, found.classes, split, example_indices(objects.images, usable))
    return looked


def _see(split: BoxSplit, sampled: set[int], index: int) -> None:
    """Raises what a decoder raises, or Unfit, for an image that cannot be used."""
    path, (height, width) = split.files[index], split.sizes[index].tolist()
    decode = needs_decoding(path, index, len(split.files), sampled)
    look_at(path, [(height, width)], "boxes", decode=decode)


def _objects(split: BoxSplit, usable: Sequence[int]) -> Objects:
    images = np.repeat(np.arange(len(split.files)), np.diff(split.bounds))
    counted = np.isin(images, usable) & ~split.ignored
    images, boxes = images[counted], split.boxes[counted].astype(np.float64)
    sides = np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    return Objects(split.labels[counted], sides, sides / split.sizes[images].max(1, initial=1), images)


def _examples(name: str, classes: Sequence[str], split: BoxSplit, indices: Sequence[int]) -> list[Example]:
    """Images with their boxes around what is in them."""
    found = []
    for index in indices:
        try:
            image = shrunk(split.files[index], EXAMPLE_SIDE)
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        rows = split.of(index)
        scale = max(image.shape[:2]) / max(int(split.sizes[index].max()), 1)
        labels = split.labels[rows].tolist()
        framed = outline(image, split.boxes[rows].astype(np.float64) * scale, labels)
        found.append(Example(only_class(classes, labels), name, png(framed), index))
    return found
