"""Looks folders of images with outlined objects through: which images cannot be used, how many things of each class
there are and how large, and what the images look like with them. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine.contract.dataset import Example
from engine.data.decoding.reading import folder_channels
from engine.data.drawing import lay_mask, png
from engine.data.formats.boxes import upright_size
from engine.data.formats.instances import MOST_INSTANCES, InstanceSplit, Outlines, paint, too_many
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


class _Seen(NamedTuple):
    """The class and the area of each thing in an image, and its longer side."""

    things: list[tuple[int, int]]
    longer: int


def look_through_instances(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every image of `found`, whose splits are of instances; into the outlines of some hundred."""
    splits = splits_of(found, InstanceSplit)
    looked = Looked(channels=folder_channels(*(split.files for _, split in splits)))
    tally = Tally(sum(len(split.files) for _, split in splits), progress, leave_out)
    crowded: list[str] = []
    for name, split in splits:
        sampled = decoded_indices(len(split.files))
        usable = tally.seen(split.files, partial(_see, split, sampled), threads)
        into = {index: each for index, each in usable.items() if each is not None}
        # Of outlines that are too many, whoever recognised the folder has told.
        crowded += [
            split.files[index]
            for index, each in into.items()
            if len(each.things) > MOST_INSTANCES and not isinstance(split.sources[index], Outlines)
        ]
        objects = _objects(into)
        of_split = report(name, found.classes, objects, len(usable), made=split.made)
        looked.splits.append(of_split)
        looked.problems += judge(name, of_split, objects, len(into), "outlined objects")
        if name == "train":
            looked.examples += _examples(name, found.classes, split, example_indices(objects.images, list(usable)))
    looked.problems += too_many(crowded)
    return looked


def _see(split: InstanceSplit, sampled: set[int], index: int) -> _Seen | None:
    """The objects of an image if it is `sampled`. Raises Unfit, or whatever a decoder raises, for an unusable one."""
    path, source = split.files[index], split.sources[index]
    decode = needs_decoding(path, index, len(split.files), sampled)
    height, width = look_at(path, source.sizes(), "outlines", decode=decode)
    if index not in sampled:
        return None
    things = [(each.label, each.area) for each in source.instances(height, width) if not each.ignored]
    return _Seen(things, max(height, width))


def _objects(into: dict[int, _Seen]) -> Objects:
    rows = [(label, area, each.longer, index) for index, each in into.items() for label, area in each.things]
    labels, areas, longer, images = np.array(rows, np.int64).reshape(-1, 4).T
    sides = np.sqrt(areas)
    return Objects(labels, sides, sides / longer, images)


def _examples(name: str, classes: Sequence[str], split: InstanceSplit, indices: Sequence[int]) -> list[Example]:
    """Images with a colour of its own over each thing."""
    found = []
    for index in indices:
        path = split.files[index]
        try:
            size = upright_size(path)
            assert size is not None
            things = split.sources[index].instances(*size)
            numbers, _ = paint(things, *size)
            image = shrunk(path, EXAMPLE_SIDE)
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        plane = np.asarray(Image.fromarray(numbers).resize(image.shape[1::-1], Image.Resampling.NEAREST))
        # The last number would be shown as none.
        laid = lay_mask(image, np.minimum(plane, MOST_INSTANCES - 1))
        found.append(Example(only_class(classes, [each.label for each in things]), name, png(laid), index))
    return found
