"""Inspection of images with boxes: unusable images, number and sizes of boxes, and examples. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from engine.contract.dataset import Example
from engine.data.decoding.reading import folder_channels
from engine.data.drawing import draw_boxes, encode_png
from engine.data.formats.shared.boxes import BoxSplit
from engine.data.inspection.base import EXAMPLE_SIDE, FileChecker, Inspection, LeaveOut, Progress, splits_of_type
from engine.data.inspection.objects import (
    Objects,
    check_image,
    check_objects,
    decoded_indices,
    example_indices,
    needs_decoding,
    only_class,
    read_shrunk,
    report,
)
from engine.data.splits import RecognizedDataset


def inspect_boxes(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images with boxes of a dataset."""
    splits = splits_of_type(found, BoxSplit)
    result = Inspection(channels=folder_channels(*(split.files for _, split in splits)))
    checker = FileChecker(sum(len(split.files) for _, split in splits), progress, leave_out)
    for name, split in splits:
        sampled = decoded_indices(len(split.files))
        usable = list(checker.check_each(split.files, partial(_check, split, sampled), threads))
        objects = _objects(split, usable)
        of_split = report(name, found.classes, objects, len(usable), is_drawn=split.is_drawn)
        result.splits.append(of_split)
        result.problems += check_objects(name, of_split, objects, len(usable), "boxes")
        if name == "train":
            result.examples += _examples(name, found.classes, split, example_indices(objects.images, usable))
    return result


def _check(split: BoxSplit, sampled: set[int], index: int) -> None:
    """Raise Unfit, or what a decoder raises, if an image is unusable."""
    path, (height, width) = split.files[index], split.sizes[index].tolist()
    decode = needs_decoding(path, index, len(split.files), sampled)
    check_image(path, [(height, width)], "boxes", decode=decode)


def _objects(split: BoxSplit, usable: Sequence[int]) -> Objects:
    images = np.repeat(np.arange(len(split.files)), np.diff(split.bounds))
    counted = np.isin(images, usable) & ~split.ignored
    images, boxes = images[counted], split.boxes[counted].astype(np.float64)
    sides = np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    return Objects(split.labels[counted], sides, sides / split.sizes[images].max(1, initial=1), images)


def _examples(name: str, classes: Sequence[str], split: BoxSplit, indices: Sequence[int]) -> list[Example]:
    """Return images with frames around their boxes."""
    found = []
    for index in indices:
        try:
            image = read_shrunk(split.files[index], EXAMPLE_SIDE)
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        rows = split.of(index)
        scale = max(image.shape[:2]) / max(int(split.sizes[index].max()), 1)
        labels = split.labels[rows].tolist()
        framed = draw_boxes(image, split.boxes[rows].astype(np.float64) * scale, labels)
        found.append(Example(only_class(classes, labels), name, encode_png(framed), index))
    return found
