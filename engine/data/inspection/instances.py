"""Inspection of images with outlined objects: unusable images, number and sizes of objects, and examples.

Torch-free.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine.contract.dataset import Example
from engine.data.decoding.reading import folder_channels
from engine.data.drawing import encode_png, overlay_mask
from engine.data.formats.shared.boxes import upright_size
from engine.data.formats.shared.instances import MAX_INSTANCES, InstanceSplit, Outlines, paint, too_many
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


class _Checked(NamedTuple):
    """Class and area of each object in an image, and the longer side of the image."""

    things: list[tuple[int, int]]
    longer: int


def inspect_instances(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images with outlined objects of a dataset, and the outlines of a sample."""
    splits = splits_of_type(found, InstanceSplit)
    result = Inspection(channels=folder_channels(*(split.files for _, split in splits)))
    checker = FileChecker(sum(len(split.files) for _, split in splits), progress, leave_out)
    crowded: list[str] = []
    for name, split in splits:
        sampled = decoded_indices(len(split.files))
        usable = checker.check_each(split.files, partial(_check, split, sampled), threads)
        sampled_objects = {index: each for index, each in usable.items() if each is not None}
        # For annotated outlines, the format has reported this already.
        crowded += [
            split.files[index]
            for index, each in sampled_objects.items()
            if len(each.things) > MAX_INSTANCES and not isinstance(split.sources[index], Outlines)
        ]
        objects = _objects(sampled_objects)
        of_split = report(name, found.classes, objects, len(usable), is_drawn=split.is_drawn)
        result.splits.append(of_split)
        result.problems += check_objects(name, of_split, objects, len(sampled_objects), "outlined objects")
        if name == "train":
            result.examples += _examples(name, found.classes, split, example_indices(objects.images, list(usable)))
    result.problems += too_many(crowded)
    return result


def _check(split: InstanceSplit, sampled: set[int], index: int) -> _Checked | None:
    """Return the objects of an image if it is `sampled`. Raises Unfit, or what a decoder raises, if it is unusable."""
    path, source = split.files[index], split.sources[index]
    decode = needs_decoding(path, index, len(split.files), sampled)
    height, width = check_image(path, source.sizes(), "outlines", decode=decode)
    if index not in sampled:
        return None
    things = [(each.label, each.area) for each in source.instances(height, width) if not each.ignored]
    return _Checked(things, max(height, width))


def _objects(sampled_objects: dict[int, _Checked]) -> Objects:
    rows = [(label, area, each.longer, index) for index, each in sampled_objects.items() for label, area in each.things]
    labels, areas, longer, images = np.array(rows, np.int64).reshape(-1, 4).T
    sides = np.sqrt(areas)
    return Objects(labels, sides, sides / longer, images)


def _examples(name: str, classes: Sequence[str], split: InstanceSplit, indices: Sequence[int]) -> list[Example]:
    """Return images with each object in a color of its own."""
    found = []
    for index in indices:
        path = split.files[index]
        try:
            size = upright_size(path)
            assert size is not None
            things = split.sources[index].instances(*size)
            numbers, _ = paint(things, *size)
            image = read_shrunk(path, EXAMPLE_SIDE)
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        plane = np.asarray(Image.fromarray(numbers).resize(image.shape[1::-1], Image.Resampling.NEAREST))
        # The last number would be shown as none.
        laid = overlay_mask(image, np.minimum(plane, MAX_INSTANCES - 1))
        found.append(Example(only_class(classes, [each.label for each in things]), name, encode_png(laid), index))
    return found
