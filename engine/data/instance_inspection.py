"""Looks folders of pictures with outlined things through: which pictures cannot be used, how many things of each class there
are and how large, and what the pictures look like with them. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine.contract.dataset import Example
from engine.data.boxes import upright_size
from engine.data.drawing import lay_mask, png
from engine.data.found import Recognised
from engine.data.instancefolder import too_many
from engine.data.instances import MOST_INSTANCES, InstanceSplit, Outlines, paint
from engine.data.looking import EXAMPLE_SIDE, LeaveOut, Looked, Progress
from engine.data.object_inspection import (
    Objects,
    decoded_places,
    example_places,
    judge,
    look_at,
    needs_decoding,
    only_class,
    report,
    shrunk,
)
from engine.data.reading import describe_failure, folder_channels


class _Judged(NamedTuple):
    """Why a picture cannot be used, "" where nothing is known against it; of those looked into the class and the area of each
    thing, and the picture's longer side."""

    reason: str
    things: list[tuple[int, int]] | None = None
    longer: int = 1


def look_through_instances(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every picture of `found`, whose splits are of instances; into the outlines of some hundred."""
    looked = Looked()
    halves = (("train", found.train), ("val", found.val))
    splits = [(name, split) for name, split in halves if isinstance(split, InstanceSplit)]
    looked.channels = folder_channels(*(split.files for _, split in splits))
    total, done = sum(len(split.files) for _, split in splits), 0
    crowded: list[str] = []
    for name, split in splits:
        sampled = decoded_places(len(split.files))
        usable: list[int] = []
        into: dict[int, _Judged] = {}
        with ThreadPoolExecutor(threads, "look") as pool:
            judged = pool.map(
                lambda place, split=split, sampled=sampled: _judge(split, place, sampled), range(len(split.files))
            )
            for place, each in enumerate(judged):
                done += 1
                progress(done, total)
                if each.reason:
                    leave_out(split.files[place], each.reason)
                    continue
                usable.append(place)
                if each.things is not None:
                    into[place] = each
        # Of outlines that are too many, whoever recognised the folder has told.
        crowded += [
            split.files[place]
            for place, each in into.items()
            if len(each.things or ()) > MOST_INSTANCES and not isinstance(split.sources[place], Outlines)
        ]
        objects = _objects(into)
        of_split = report(name, found.classes, objects, len(usable), made=split.made)
        looked.splits.append(of_split)
        looked.problems += judge(name, of_split, objects, len(into), "outlined things")
        if name == "train":
            looked.examples += _examples(name, found.classes, split, example_places(objects.pictures, usable))
    looked.problems += too_many(crowded)
    return looked


def _judge(split: InstanceSplit, place: int, sampled: set[int]) -> _Judged:
    path, source = split.files[place], split.sources[place]
    try:
        decode = needs_decoding(path, place, len(split.files), sampled)
        height, width = look_at(path, source.sizes(), "outlines", decode=decode)
        if place not in sampled:
            return _Judged("")
        things = [(each.label, each.area) for each in source.instances(height, width) if not each.ignored]
    except Exception as error:  # a broken file may raise nearly anything in a decoder
        return _Judged(describe_failure(error))
    return _Judged("", things, max(height, width))


def _objects(into: dict[int, _Judged]) -> Objects:
    rows = [(label, area, each.longer, place) for place, each in into.items() for label, area in each.things or ()]
    labels, areas, longer, pictures = np.array(rows, np.int64).reshape(-1, 4).T
    sides = np.sqrt(areas)
    return Objects(labels, sides, sides / longer, pictures)


def _examples(name: str, classes: Sequence[str], split: InstanceSplit, places: Sequence[int]) -> list[Example]:
    """Pictures with a colour of its own over each thing."""
    found = []
    for place in places:
        path = split.files[place]
        try:
            size = upright_size(path)
            assert size is not None
            things = split.sources[place].instances(*size)
            numbers, _ = paint(things, *size)
            picture = shrunk(path, EXAMPLE_SIDE)
        except Exception:
            continue  # it could be read a moment ago; a picture fewer is shown
        plane = np.asarray(Image.fromarray(numbers).resize(picture.shape[1::-1], Image.Resampling.NEAREST))
        # The last number would be shown as none.
        laid = lay_mask(picture, np.minimum(plane, MOST_INSTANCES - 1))
        found.append(Example(only_class(classes, [each.label for each in things]), name, png(laid), place))
    return found
