"""Images with boxes, as returned by all formats. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.contract.problems import Problem
from engine.data.decoding.orientation import QUARTER, get_orientation
from engine.data.decoding.reading import MAX_PIXELS, check_size, silence_pillow
from engine.data.decoding.tiff import open_to_show
from engine.data.splits import Labels, warn_about

MAX_BOXES = 1000
"""Maximum number of boxes that are used in one image. If there are more, the largest ones are used.

The targets of every image take as much memory as those of the image with the most boxes.
"""
TOLERANCE = 1.0
"""Maximum overhang of a box beyond its image in pixels that causes no warning. Some tools count edges from 1."""
MIN_SIDE = 1e-3
"""Minimum side length of a box in pixels. In single precision, opposite edges of a smaller box could be equal."""
THREADS = 4
ANY_CLASS = -1
"""Class of boxes that mark regions to ignore. Predictions in them count neither as correct nor as wrong."""

Boxes = npt.NDArray[np.float32]
Sizes = npt.NDArray[np.int64]


class Box(NamedTuple):
    """Box of an object.

    The edges are distances from the left and the top of the image, in pixels or as fractions of the image size. `label`
    is the class. An `ignored` box (a crowd or a difficult object) is neither learned nor counted as missed.
    """

    left: float
    top: float
    right: float
    bottom: float
    label: int
    ignored: bool = False


@dataclass
class BoxedImage:
    """Image with boxes.

    `size` is its height and width, or None if unknown. If `fractions` is True, the edges of its boxes are fractions of
    the image size, otherwise pixels.
    """

    path: str
    boxes: list[Box] = field(default_factory=list)
    size: tuple[int, int] | None = None
    fractions: bool = False


@dataclass(frozen=True, eq=False)
class BoxSplit:
    """Split of image files with boxes.

    `sizes`, int64 [n, 2], holds the heights and widths of the images, or 0 for unreadable images. The boxes of image i
    are the rows from `bounds[i]` to `bounds[i + 1]` in three arrays: `boxes`, float32 [k, 4] (x1, y1, x2, y2 in pixels,
    inside the image and with a positive area), `labels`, int64 [k], and `ignored`, bool [k].
    """

    files: Sequence[str]
    sizes: Sizes
    bounds: Labels
    boxes: Boxes
    labels: Labels
    ignored: npt.NDArray[np.bool_]
    is_drawn: bool = False

    def rows_of(self, index: int) -> slice:
        """Return the slice of the three arrays that holds the boxes of the image with the given index."""
        return slice(int(self.bounds[index]), int(self.bounds[index + 1]))

    def select(self, which: npt.NDArray[np.bool_], *, is_drawn: bool) -> BoxSplit:
        """Return a split with only the images for which `which`, bool [n], is True.

        `is_drawn` is True if the new split is sampled from the training samples and does not exist in the folder.
        """
        counts = np.diff(self.bounds)
        rows = np.repeat(which, counts)
        return BoxSplit(
            [path for path, chosen in zip(self.files, which.tolist(), strict=True) if chosen],
            self.sizes[which],
            np.concatenate([[0], np.cumsum(counts[which])]),
            self.boxes[rows],
            self.labels[rows],
            self.ignored[rows],
            is_drawn,
        )


def gather(images: Sequence[BoxedImage], classes: int, faults: BoxFaults) -> BoxSplit:
    """Convert images with boxes to a split.

    Boxes are clipped to their image, and unusable boxes are dropped and counted in `faults`. `classes` is the number of
    classes. A box of the class ANY_CLASS becomes one box for each class.
    """
    sizes = find_image_sizes(images)
    paths = [image.path for image in images]
    boxes = [box for image in images for box in image.boxes]
    image_of_box = np.repeat(np.arange(len(paths)), [len(image.boxes) for image in images])
    labels = np.array([box.label for box in boxes], np.int64)
    ignored = np.array([box.ignored for box in boxes], bool)
    edges = np.array([box[:4] for box in boxes], np.float64).reshape(-1, 4)
    sides = np.tile(sizes[image_of_box][:, ::-1], 2).astype(np.float64)  # width, height, width and height of the image
    are_fractions = np.array([image.fractions for image in images], bool)[image_of_box]
    edges *= np.where(are_fractions[:, None], sides, 1)
    clipped = np.clip(edges, 0, sides)
    is_valid = (clipped[:, 2:] - clipped[:, :2] > MIN_SIDE).all(1)  # False for NaN, too
    overhang = np.concatenate([-edges[:, :2], edges[:, 2:] - sides[:, 2:]], 1)  # beyond each edge of the image
    is_outside = overhang.max(1, initial=0) > TOLERANCE
    has_readable_image = sides.all(1)  # the inspection reports the other images
    faults.empty += [paths[image] for image in image_of_box[~is_valid & has_readable_image].tolist()]
    faults.outside += [paths[image] for image in image_of_box[is_valid & is_outside].tolist()]
    # Repeat boxes of ANY_CLASS once for each class, and give the copies the classes 0, 1 and so on.
    rows = np.repeat(np.flatnonzero(is_valid), np.where(labels[is_valid] == ANY_CLASS, classes, 1))
    first_copies = np.flatnonzero(np.diff(rows, prepend=-1))  # where another row begins
    copy_numbers = np.arange(len(rows)) - np.repeat(first_copies, np.diff(first_copies, append=len(rows)))
    labels = np.where(labels[rows] == ANY_CLASS, copy_numbers, labels[rows])
    image_of_box, clipped, ignored = image_of_box[rows], clipped[rows], ignored[rows]
    is_used = _select_largest(image_of_box, clipped, paths, faults)
    counts = np.bincount(image_of_box[is_used], minlength=len(paths))
    bounds = np.concatenate([[0], np.cumsum(counts)])
    return BoxSplit(paths, sizes, bounds, clipped[is_used].astype(np.float32), labels[is_used], ignored[is_used])


def _select_largest(
    image_of_box: Labels, boxes: npt.NDArray[np.float64], paths: Sequence[str], faults: BoxFaults
) -> npt.NDArray[np.bool_]:
    """Return a mask, bool [k], of the boxes to use: the `MAX_BOXES` largest ones of each image.

    `image_of_box` holds the image of each box, and `boxes` [k, 4] their edges. Images with more boxes are added to
    `faults`.
    """
    used = np.ones(len(image_of_box), bool)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for image in np.flatnonzero(np.bincount(image_of_box, minlength=len(paths)) > MAX_BOXES).tolist():
        faults.crowded.append(paths[image])
        rows = np.flatnonzero(image_of_box == image)
        used[rows[np.argsort(-areas[rows], kind="stable")[MAX_BOXES:]]] = False
    return used


class BoxFaults:
    """Collector for faults in boxes. Each kind of fault is reported once, with the names of the first images."""

    def __init__(self) -> None:
        # Paths of the images, once for each fault.
        self.empty: list[str] = []  # boxes without area
        self.outside: list[str] = []  # boxes beyond their image
        self.crowded: list[str] = []  # images with too many boxes

    def problems(self) -> list[Problem]:
        """Return a warning about each kind of fault that boxes have, with the first images."""
        remedy = "Such boxes are left out; redraw them, or remove them from the annotations."
        found = warn_about(self.empty, "box", "without area, in", remedy)
        remedy = "Such boxes are clipped at the edges of the image; check that the annotations belong to these images."
        found += warn_about(self.outside, "box", "extending beyond the image, in", remedy)
        remedy = "The largest boxes are used; cut such images into tiles to learn from all."
        found += warn_about(self.crowded, "image", f"with more than {MAX_BOXES:,} boxes:", remedy)
        return found


def find_image_sizes(images: Sequence[BoxedImage]) -> Sizes:
    """Return the heights and widths of images, int64 [n, 2], with 0 for unknown sizes.

    They are taken from the annotations or else from the image headers, which are read in several threads. Turns off
    Pillow's warnings in this process.
    """
    silence_pillow()
    annotated = [image.size or (0, 0) for image in images]
    usable = [size if min(size) > 0 and max(size) <= MAX_PIXELS else (0, 0) for size in annotated]
    sizes = np.array(usable, np.int64).reshape(-1, 2)
    without_size = np.flatnonzero((sizes == 0).any(1)).tolist()
    with ThreadPoolExecutor(THREADS, "sizes") as pool:
        read = pool.map(read_upright_size, [images[index].path for index in without_size])
        for index, size in zip(without_size, read, strict=True):
            sizes[index] = size or (0, 0)
    return sizes


def read_upright_size(path: str) -> tuple[int, int] | None:
    """Return the height and width of the image at `path` after EXIF rotation, from its header.

    Returns None if the image can't be read.
    """
    try:
        with open_to_show(path) as image:
            return get_upright_size(image)
    except Exception:  # a broken file may raise nearly anything in a decoder
        return None


def get_upright_size(image: Image.Image) -> tuple[int, int]:
    """Return the height and width of an opened image after EXIF rotation. Raises Unfit if it is too large."""
    check_size(image)
    is_turned = get_orientation(image) in QUARTER  # by a quarter, which swaps width and height
    return image.size if is_turned else image.size[::-1]
