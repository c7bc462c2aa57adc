"""Looks folders of images and edges through: sizes that differ, images without an edge, edges that are black on
white, and what they look like. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from PIL import Image

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.edges import Drawn, read_edges
from engine.data.decoding.pixels import read_to_show
from engine.data.decoding.reading import Unfit, folder_channels, read_image
from engine.data.decoding.tiff import open_to_show
from engine.data.drawing import png
from engine.data.formats.boxes import size_upright
from engine.data.formats.edges import EdgeSplit
from engine.data.inspection.base import EXAMPLE_SIDE, EXAMPLES, LeaveOut, Looked, Progress, Tally, splits_of
from engine.data.splits import Recognised, spread_evenly, warn, wrong

DECODED = 512
"""About so many files of edges of a split are read, evenly spread; of the others the images' sizes alone."""
_MARKED = np.array([255, 64, 64], np.uint8)


class _Seen(NamedTuple):
    """Figures of an image's edges, as in `Drawn`."""

    taken: float
    inverted: bool


def look_through_edges(found: Recognised, progress: Progress, leave_out: LeaveOut, threads: int) -> Looked:
    """Looks at every image of `found`, whose splits are of edges."""
    splits = splits_of(found, EdgeSplit)
    looked = Looked(channels=folder_channels(*(split.files for _, split in splits)))
    tally = Tally(sum(len(split.files) for _, split in splits), progress, leave_out)
    for name, split in splits:
        sampled = set(spread_evenly(len(split.files), DECODED))
        seen = tally.seen(split.files, partial(_see, split, sampled), threads)
        read = [each for each in seen.values() if each is not None]
        with_edges = sum(each.taken > 0 for each in read)
        taken = float(np.mean([each.taken for each in read])) if read else 0.0
        looked.splits.append(
            SplitReport(name, {"edge": with_edges}, split.made, total=len(seen), shares={"edge": taken})
        )
        looked.problems += _judge(name, read, bool(seen))
        if name == "train":
            looked.examples += _examples(name, split, list(seen))
    return looked


def _see(split: EdgeSplit, sampled: set[int], index: int) -> _Seen | None:
    """Figures of an image's edges if it is `sampled`. Raises Unfit, or whatever a decoder raises, for an unusable
    one."""
    with open_to_show(split.files[index]) as image:
        height, width = size_upright(image)
    if index not in sampled:
        return None
    drawn = _drawn(split, index).rotated_with(split.files[index], (height, width))
    if drawn.sides != (height, width):
        sizes = f"{drawn.sides[1]} x {drawn.sides[0]} pixels, the image has {width} x {height}"
        raise Unfit(f"its edges have a different size ({sizes})")
    return _Seen(drawn.taken, drawn.inverted)


def _drawn(split: EdgeSplit, index: int) -> Drawn:
    return read_edges(split.edges[index], read_image(split.edges[index]))


def _judge(name: str, read: Sequence[_Seen], usable: bool) -> list[Problem]:
    title = "training" if name == "train" else "validation"
    if not usable:
        return [wrong(f"None of the {title} images can be used.", "Choose a folder with readable images and edges.")]
    inverted, bare = sum(each.inverted for each in read), sum(each.taken == 0 for each in read)
    found = []
    if bare == len(read):
        remedy = "Edges are white on black, brighter than 30 % of white."
        found.append(wrong(f"None of the {title} images has an edge.", remedy))
    elif bare:
        message = f"{bare:,} of {len(read):,} {title} images have no edges."
        found.append(
            warn(
                message, "The model learns no edges from them, and every edge that it predicts in them counts as wrong."
            )
        )
    if inverted:
        message = f"In {inverted:,} of {len(read):,} {title} images, more than half of the pixels are edges."
        found.append(warn(message, "Edges must be white on black; invert those that are black on white."))
    return found


def _examples(name: str, split: EdgeSplit, usable: Sequence[int]) -> list[Example]:
    """Some images with what any annotator drew in red."""
    found = []
    for row in spread_evenly(len(usable), EXAMPLES)[:EXAMPLES]:
        index = usable[row]
        try:
            image = read_to_show(split.files[index]).convert("RGB")
            edges = _drawn(split, index).rotated_with(split.files[index], image.size[::-1])
            drawn = Image.fromarray(edges.layers.any(0).astype(np.uint8) * 255)
        except Exception:
            continue  # it could be read a moment ago; an image fewer is shown
        image.thumbnail((EXAMPLE_SIDE, EXAMPLE_SIDE))
        # A thin line keeps a part of its brightness where many pixels become one.
        strength = np.asarray(drawn.resize(image.size, Image.Resampling.BOX))[:, :, None] / 255.0
        share = np.minimum(strength * max(1, drawn.width / image.width), 1)
        pixels = np.asarray(image) * (1 - share) + _MARKED * share
        found.append(Example("", name, png(np.rint(pixels).astype(np.uint8)), index))
    return found
