"""Checks and reports that boxes and outlined objects have in common. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import ImageOps

from engine.contract.dataset import SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.header_check import seems_complete
from engine.data.decoding.idx import Bytes
from engine.data.decoding.orientation import rotation_of
from engine.data.decoding.reading import Unfit
from engine.data.decoding.tiff import open_to_show
from engine.data.decoding.transparency import opaque
from engine.data.formats.shared.boxes import size_upright
from engine.data.inspection.base import EXAMPLES
from engine.data.splits import dataset_error, dataset_warning, spread_evenly
from engine.system.format import listed

DECODED = 512
"""Number of images of a split that are decoded although they seem complete, about."""
ODD_DECODED = 2048
"""Largest split whose possibly incomplete images are all decoded; in larger splits their headers are read."""
SMALL = 0.02
"""Median side of the objects, as a share of the image's longer side, below which they are reported as small: they have
6 pixels of 320, and usual detectors have a cell for each 4 to 8."""


@dataclass
class Objects:
    """Objects in the usable images of a split, without ignored ones.

    Attributes:
        labels: Classes.
        sides: Square roots of the areas, in pixels.
        shares: The same as shares of the longer side of the image.
        images: Index of the image of each.
    """

    labels: npt.NDArray[np.int64]
    sides: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]
    images: npt.NDArray[np.int64]


def decoded_indices(count: int) -> set[int]:
    """Return the indices of images that are decoded in any case."""
    return set(spread_evenly(count, DECODED))


def check_image(path: str, annotated: Sequence[tuple[int, int]], what: str, *, decode: bool) -> tuple[int, int]:
    """Return the height and width of an image after EXIF rotation, and compare them with its annotations.

    Raises Unfit, or what a decoder raises, if the image is unusable.

    Args:
        path: Image.
        annotated: Sizes that the annotations give.
        what: Name of the objects in messages.
        decode: True to decode the pixels as well.
    """
    with open_to_show(path) as image:
        size, rotation = size_upright(image), rotation_of(image)
    for height, width in annotated:
        if (height, width) != size:
            turned = "" if rotation is None else " once its EXIF orientation is applied"
            actual = f"it has {size[1]} x {size[0]} pixels{turned}"
            raise Unfit(f"{actual}, but its {what} belong to an image of {width} x {height}")
    if decode:
        with open_to_show(path) as image:
            image.draft(image.mode, (1, 1))
            image.load()
    return size


def needs_decoding(path: str, index: int, count: int, sampled: set[int]) -> bool:
    """Return True if an image among `count` is decoded to be sure that it is complete."""
    return index in sampled or (count <= ODD_DECODED and not seems_complete(path))


def report(name: str, classes: Sequence[str], objects: Objects, usable: int, *, is_drawn: bool) -> SplitReport:
    """Return the report of a split with that many usable images."""
    number = len(classes)
    counts = np.bincount(objects.labels, minlength=number)
    pairs = np.unique(np.stack([objects.images, objects.labels]), axis=1)
    images = np.bincount(pairs[1], minlength=number)
    sides = np.percentile(objects.sides, (5, 50, 95)).tolist() if len(objects.sides) else None
    return SplitReport(
        name,
        dict(zip(classes, images.tolist(), strict=True)),
        is_drawn,
        total=usable,
        objects=dict(zip(classes, counts.tolist(), strict=True)),
        object_sides=None if sides is None else (sides[0], sides[1], sides[2]),
    )


def check_objects(name: str, split: SplitReport, objects: Objects, inspected: int, noun: str) -> list[Problem]:
    """Return the problems of the objects in a split.

    Args:
        name: "train" or "val".
        split: Report of the split.
        objects: Objects in its usable images.
        inspected: Number of images whose objects were read.
        noun: Plural name of the objects.
    """
    title = "training" if name == "train" else "validation"
    if not split.images:
        return [dataset_error(f"None of the {title} images can be used.", "Choose a folder with readable images.")]
    if not len(objects.labels):
        return [
            dataset_error(f"None of the {title} images has any {noun}.", "Annotate some, or choose another folder.")
        ]
    found = []
    never = [class_name for class_name, count in split.objects.items() if not count]
    if never:
        what = "never learned" if name == "train" else "never validated"
        found.append(dataset_warning(f"The {title} images have no {noun} of {listed(never, most=5)}; this is {what}."))
    empty = inspected - len(np.unique(objects.images))
    if empty:
        of = f"{empty:,} of the {inspected:,} {title} images" + (" inspected" if inspected < split.images else "")
        message = f"{of} {'has' if empty == 1 else 'have'} no {noun}."
        found.append(dataset_warning(message, "They are kept as background. If they show objects, annotate them."))
    if name == "train" and float(np.median(objects.shares)) < SMALL:
        share = float(np.median(objects.shares))
        message = f"Half of the {noun} are smaller than {100 * share:.1f} % of their image's longer side."
        found.append(dataset_warning(message, "Choose a larger image size, or cut the images into tiles."))
    return found


def example_indices(images: npt.NDArray[np.int64], usable: Sequence[int]) -> list[int]:
    """Return some of the `usable` images, evenly spread; images with objects are preferred."""
    with_things = sorted(set(usable) & set(images.tolist()))
    chosen = [with_things[row] for row in spread_evenly(len(with_things), EXAMPLES)[:EXAMPLES]]
    return chosen or list(usable[:EXAMPLES])


def only_class(classes: Sequence[str], labels: Sequence[int]) -> str:
    """Return the class of the objects in an image if all have the same; else ""."""
    return classes[labels[0]] if len(set(labels)) == 1 else ""


def read_shrunk(path: str, side: int) -> Bytes:
    """Return an image after EXIF rotation, uint8 [h, w, 3] of at most `side`. Raises what a decoder raises."""
    with open_to_show(path) as opened:
        opened.draft("RGB", (2 * side, 2 * side))
        image = opaque(ImageOps.exif_transpose(opened)).convert("RGB")
    image.thumbnail((side, side))
    return np.asarray(image)
