"""What the inspections of boxes and of outlined objects share. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import ImageOps

from engine.contract.dataset import SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.header_check import seems_whole
from engine.data.decoding.idx import Bytes
from engine.data.decoding.orientation import rotation_of
from engine.data.decoding.reading import Unfit
from engine.data.decoding.tiff import open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.formats.boxes import size_upright
from engine.data.inspection.base import EXAMPLES
from engine.data.splits import spread_evenly, warn, wrong
from engine.system.format import listed

DECODED = 512
"""About so many images of a split are decoded though they seem whole, evenly spread over it."""
ODD_DECODED = 2048
"""In a split of at most so many images, all that do not seem whole are decoded, or are of a format of which that
cannot be told; of a larger one the headers are read."""
SMALL = 0.02
"""Where half of the things have smaller sides, in shares of the image's longer one, that is told: they take 6 pixels of
320, and the finest map of usual detectors has a cell for each 4 to 8."""


@dataclass
class Objects:
    """The things in the images of a split that can be used: their classes, but for those that are to be ignored, the
    square roots of their areas in pixels, those as shares of their images' longer sides, and in which image each
    is."""

    labels: npt.NDArray[np.int64]
    sides: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]
    images: npt.NDArray[np.int64]


def decoded_indices(count: int) -> set[int]:
    """Which of so many images are decoded in any case."""
    return set(spread_evenly(count, DECODED))


def look_at(path: str, told: Sequence[tuple[int, int]], what: str, *, decode: bool) -> tuple[int, int]:
    """The height and width of an image turned upright, which must be those that its annotation gives (`told`); `what`
    names the objects in messages. Raises Unfit, or whatever a decoder raises, for an unusable image."""
    with open_to_show(path) as image:
        size, rotation = size_upright(image), rotation_of(image)
    for height, width in told:
        if (height, width) != size:
            turned = "" if rotation is None else " once its EXIF orientation is applied"
            own = f"it has {size[1]} x {size[0]} pixels{turned}"
            raise Unfit(f"{own}, but its {what} belong to an image of {width} x {height}")
    if decode:
        with open_to_show(path) as image:
            image.draft(image.mode, (1, 1))
            image.load()
    return size


def needs_decoding(path: str, index: int, count: int, sampled: set[int]) -> bool:
    """Whether an image of so many is to be decoded to be sure of it."""
    return index in sampled or (count <= ODD_DECODED and not seems_whole(path))


def report(name: str, classes: Sequence[str], objects: Objects, usable: int, *, made: bool) -> SplitReport:
    """The report of a split with that many usable images."""
    number = len(classes)
    counts = np.bincount(objects.labels, minlength=number)
    pairs = np.unique(np.stack([objects.images, objects.labels]), axis=1)
    images = np.bincount(pairs[1], minlength=number)
    sides = np.percentile(objects.sides, (5, 50, 95)).tolist() if len(objects.sides) else None
    return SplitReport(
        name,
        dict(zip(classes, images.tolist(), strict=True)),
        made,
        total=usable,
        objects=dict(zip(classes, counts.tolist(), strict=True)),
        object_sides=None if sides is None else (sides[0], sides[1], sides[2]),
    )


def judge(name: str, split: SplitReport, objects: Objects, looked_into: int, noun: str) -> list[Problem]:
    """The problems of the objects in a split; `looked_into` of its images were inspected for them, and `noun` is their
    plural name."""
    title = "training" if name == "train" else "validation"
    if not split.images:
        return [wrong(f"None of the {title} images can be used.", "Choose a folder with readable images.")]
    if not len(objects.labels):
        return [wrong(f"None of the {title} images has any {noun}.", "Annotate some, or choose another folder.")]
    found = []
    never = [class_name for class_name, count in split.objects.items() if not count]
    if never:
        what = "never learned" if name == "train" else "never validated"
        found.append(warn(f"The {title} images have no {noun} of {listed(never, most=5)}; this is {what}."))
    empty = looked_into - len(np.unique(objects.images))
    if empty:
        of = f"{empty:,} of the {looked_into:,} {title} images" + (" inspected" if looked_into < split.images else "")
        message = f"{of} {'has' if empty == 1 else 'have'} no {noun}."
        found.append(warn(message, "They are kept as background. If they show objects, annotate them."))
    if name == "train" and float(np.median(objects.shares)) < SMALL:
        share = float(np.median(objects.shares))
        message = f"Half of the {noun} are smaller than {100 * share:.1f} % of their image's longer side."
        found.append(warn(message, "Choose a larger image size, or cut the images into tiles."))
    return found


def example_indices(images: npt.NDArray[np.int64], usable: Sequence[int]) -> list[int]:
    """Some indices of `usable`, evenly spread, those first in which there are things, by `images`."""
    with_things = sorted(set(usable) & set(images.tolist()))
    chosen = [with_things[row] for row in spread_evenly(len(with_things), EXAMPLES)[:EXAMPLES]]
    return chosen or list(usable[:EXAMPLES])


def only_class(classes: Sequence[str], labels: Sequence[int]) -> str:
    """The class of all things in an image; "" where they are of several, or where there are none."""
    return classes[labels[0]] if len(set(labels)) == 1 else ""


def shrunk(path: str, side: int) -> Bytes:
    """An image turned upright, uint8 [h, w, 3] of at most `side`. Raises what a decoder raises."""
    with open_to_show(path) as opened:
        opened.draft("RGB", (2 * side, 2 * side))
        image = opaque(ImageOps.exif_transpose(opened)).convert("RGB")
    image.thumbnail((side, side))
    return np.asarray(image)
