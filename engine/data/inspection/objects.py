"""Inspect images with boxes or outlined objects. Torch-free.

The inspection checks the images, counts and measures the objects, and draws examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from engine.contract.dataset import Example, SplitReport
from engine.contract.problems import Problem
from engine.data.decoding.header_check import seems_complete
from engine.data.decoding.idx import Bytes
from engine.data.decoding.orientation import get_rotation
from engine.data.decoding.reading import Unfit
from engine.data.decoding.tiff import open_to_show
from engine.data.decoding.transparency import remove_transparency
from engine.data.drawing import draw_boxes, encode_png, overlay_mask
from engine.data.formats.shared.boxes import BoxSplit, get_upright_size, read_upright_size
from engine.data.formats.shared.instances import MAX_INSTANCES, InstanceSplit, Outlines, paint, warn_about_crowds
from engine.data.inspection.base import (
    EXAMPLE_SIDE,
    EXAMPLES,
    Inspection,
    LeaveOut,
    Progress,
    describe_missing_class,
    draw_examples,
    spread_examples,
    start_inspection,
    title_of,
)
from engine.data.splits import RecognizedDataset, dataset_error, dataset_warning, spread_evenly
from engine.system.format import listed

MAX_DECODED = 512
"""Maximum number of images in a split that are decoded even though their first and last bytes are intact."""
MAX_INCOMPLETE_DECODED = 2048
"""Maximum number of images in a split for which every possibly incomplete image is decoded.

In larger splits, only the headers of such images are read.
"""
SMALL = 0.02
"""Minimum fraction of an image's longer side that the median side of the objects should have.

Otherwise, the objects are reported as small. In an image of 320 pixels such objects have a side of 6 pixels, and common
detectors have one cell per 4 to 8 pixels.
"""


@dataclass
class Objects:
    """Objects in the usable images of a split, excluding ignored objects.

    Attributes:
        labels: Class of each object, [n].
        sides: Square root of each object's area, in pixels.
        relative_sides: `sides` as fractions of the longer side of the image.
        images: Index of each object's image in the split.
    """

    labels: npt.NDArray[np.int64]
    sides: npt.NDArray[np.float64]
    relative_sides: npt.NDArray[np.float64]
    images: npt.NDArray[np.int64]


def check_image(path: str, annotated: Sequence[tuple[int, int]], noun: str, *, decode: bool) -> tuple[int, int]:
    """Check an image, compare its size with its annotations, and return its height and width after EXIF rotation.

    `annotated` has heights and widths of the image according to its annotations. `noun` names the annotations in
    messages, such as "boxes". Without `decode`, only the header is read. Raises Unfit, or any exception of the decoder,
    if the image is unusable.
    """
    with open_to_show(path) as image:
        size, rotation = get_upright_size(image), get_rotation(image)
    for height, width in annotated:
        if (height, width) != size:
            turned = "" if rotation is None else " once its EXIF orientation is applied"
            actual = f"it has {size[1]} x {size[0]} pixels{turned}"
            raise Unfit(f"{actual}, but its {noun} belong to an image of {width} x {height}")
    if decode:
        with open_to_show(path) as image:
            image.draft(image.mode, (1, 1))  # decodes a JPEG at the smallest scale
            image.load()
    return size


def needs_decoding(path: str, index: int, count: int, sampled: set[int]) -> bool:
    """Return True if an image should be decoded to check if it is complete.

    This is the case if its `index` is in `sampled`, or if it may be incomplete in a split of not too many images.
    `count` is the number of images in the split.
    """
    return index in sampled or (count <= MAX_INCOMPLETE_DECODED and not seems_complete(path))


def make_report(name: str, classes: Sequence[str], objects: Objects, usable: int, *, is_drawn: bool) -> SplitReport:
    """Return the report for the split `name` with `usable` readable images.

    It has the number of images with each class, the number of objects of each class, and the 5th, 50th and 95th
    percentile of the objects' sides. `is_drawn` is True if the split was sampled from the training images.
    """
    object_counts = np.bincount(objects.labels, minlength=len(classes))
    _, labels_of_images = np.unique(np.stack([objects.images, objects.labels]), axis=1)  # each pair once
    image_counts = np.bincount(labels_of_images, minlength=len(classes))
    percentiles = np.percentile(objects.sides, (5, 50, 95)).tolist() if len(objects.sides) else None
    return SplitReport(
        name,
        dict(zip(classes, image_counts.tolist(), strict=True)),
        is_drawn,
        total=usable,
        objects=dict(zip(classes, object_counts.tolist(), strict=True)),
        object_sides=None if percentiles is None else (percentiles[0], percentiles[1], percentiles[2]),
    )


def check_objects(name: str, split: SplitReport, objects: Objects, inspected: int, noun: str) -> list[Problem]:
    """Return problems with the objects in the usable images of a split, "train" or "val".

    `inspected` is the number of images whose objects were read, and `noun` the plural of the objects.
    """
    title = title_of(name)
    if not split.images:
        return [dataset_error(f"None of the {title} images can be used.", "Choose a folder with readable images.")]
    if not len(objects.labels):
        return [
            dataset_error(f"None of the {title} images has any {noun}.", "Annotate some, or choose another folder.")
        ]
    found = []
    never = [class_name for class_name, count in split.objects.items() if not count]
    if never:
        message = (
            f"The {title} images have no {noun} of {listed(never, most=5)}; this is {describe_missing_class(name)}."
        )
        found.append(dataset_warning(message))
    empty = inspected - len(np.unique(objects.images))
    if empty:
        counted = f"{empty:,} of the {inspected:,} {title} images" + (" inspected" if inspected < split.images else "")
        message = f"{counted} {'has' if empty == 1 else 'have'} no {noun}."
        remedy = "Such images are kept as background. If they show objects, annotate them."
        found.append(dataset_warning(message, remedy))
    median_side = float(np.median(objects.relative_sides))
    if name == "train" and median_side < SMALL:
        message = f"Half of the {noun} are smaller than {100 * median_side:.1f}% of their image's longer side."
        found.append(dataset_warning(message, "Choose a larger image size, or cut the images into tiles."))
    return found


def select_examples(images: npt.NDArray[np.int64], usable: Sequence[int]) -> list[int]:
    """Return the indices of some evenly spaced images out of the `usable` ones.

    Images with objects are preferred. `images` holds the index of the image for each object.
    """
    with_objects = sorted(set(usable) & set(images.tolist()))
    return spread_examples(with_objects) or list(usable[:EXAMPLES])


def read_shrunk(path: str, side: int) -> Bytes:
    """Return an image after EXIF rotation as uint8 [h, w, 3], shrunk until its longer side is at most `side` pixels.

    Raises any exception of the decoder.
    """
    with open_to_show(path) as opened:
        opened.draft("RGB", (2 * side, 2 * side))  # decodes a large JPEG at a reduced size
        image = remove_transparency(ImageOps.exif_transpose(opened)).convert("RGB")
    image.thumbnail((side, side))
    return np.asarray(image)


class _ImageObjects(NamedTuple):
    """Class and area, in pixels, of each object in an image, and the longer side of the image."""

    objects: list[tuple[int, int]]
    longer_side: int


class _Measurements(NamedTuple):
    """Objects that were measured in a split.

    `inspected` is the number of images whose objects were read, and `crowded` are the paths of images with too many
    objects.
    """

    objects: Objects
    inspected: int
    crowded: Sequence[str] = ()


@dataclass(frozen=True)
class _ObjectKind:
    """Functions for one kind of objects: boxes or outlined objects.

    Attributes:
        split: Type of the splits.
        noun: Plural name of the objects.
        check: Function that checks one image. It takes the split, the sampled indices and the index of the image, and
            raises an exception if the image is unusable.
        measure: Function that measures the objects in a split, given the results of `check`.
        draw: Function that returns an image with its objects drawn on it, and the class of each object.
    """

    split: type[Any]
    noun: str
    check: Callable[[Any, set[int], int], _ImageObjects | None]
    measure: Callable[[Any, dict[int, _ImageObjects | None]], _Measurements]
    draw: Callable[[Any, int], tuple[Bytes, list[int]]]


def inspect_boxes(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images in a dataset of images with boxes. Unusable images are passed to `leave_out`."""
    boxes = _ObjectKind(BoxSplit, "boxes", _check_boxes, _measure_boxes, _draw_boxes)
    return _inspect_objects(boxes, found, progress, leave_out, threads)


def inspect_instances(found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int) -> Inspection:
    """Inspect all images in a dataset of images with outlined objects, and the objects in a sample of them.

    Unusable images are passed to `leave_out`.
    """
    outlined = _ObjectKind(InstanceSplit, "outlined objects", _check_instances, _measure_instances, _draw_instances)
    return _inspect_objects(outlined, found, progress, leave_out, threads)


def _inspect_objects(
    kind: _ObjectKind, found: RecognizedDataset, progress: Progress, leave_out: LeaveOut, threads: int
) -> Inspection:
    """Inspect all images and their objects, which are of the given kind.

    Unusable images are passed to `leave_out`. Problems with objects are part of the result. At most `MAX_DECODED`
    images of a split are decoded although their first and last bytes are intact.
    """
    splits, result, checker = start_inspection(found, kind.split, progress, leave_out)
    crowded: list[str] = []
    for name, split in splits:
        sampled = set(spread_evenly(len(split.files), MAX_DECODED))
        usable = checker.check_each(split.files, partial(kind.check, split, sampled), threads)
        measured = kind.measure(split, usable)
        crowded += measured.crowded
        split_report = make_report(name, found.classes, measured.objects, len(usable), is_drawn=split.is_drawn)
        result.splits.append(split_report)
        result.problems += check_objects(name, split_report, measured.objects, measured.inspected, kind.noun)
        if name == "train":
            chosen = select_examples(measured.objects.images, list(usable))
            result.examples += draw_examples(chosen, partial(_draw_example, kind, found.classes, split))
    result.problems += warn_about_crowds(crowded)
    return result


def _draw_example(kind: _ObjectKind, classes: Sequence[str], split: Any, index: int) -> Example:
    """Return an example: a training image with its objects, and the class if all of its objects have the same one."""
    image, labels = kind.draw(split, index)
    return Example(classes[labels[0]] if len(set(labels)) == 1 else "", "train", encode_png(image), index)


def _check_boxes(split: BoxSplit, sampled: set[int], index: int) -> None:
    """Check if the image with the given index is readable and has the size that its boxes belong to.

    `sampled` are the indices of images that are always decoded. Raises Unfit, or any exception of the decoder.
    """
    path, (height, width) = split.files[index], split.sizes[index].tolist()
    decode = needs_decoding(path, index, len(split.files), sampled)
    check_image(path, [(height, width)], "boxes", decode=decode)


def _measure_boxes(split: BoxSplit, usable: dict[int, _ImageObjects | None]) -> _Measurements:
    """Measure the boxes in the images whose indices are the keys of `usable`."""
    images = np.repeat(np.arange(len(split.files)), np.diff(split.bounds))
    is_counted = np.isin(images, list(usable)) & ~split.ignored
    images, boxes = images[is_counted], split.boxes[is_counted].astype(np.float64)
    sides = np.sqrt((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))
    relative_sides = sides / split.sizes[images].max(1, initial=1)
    return _Measurements(Objects(split.labels[is_counted], sides, relative_sides, images), len(usable))


def _draw_boxes(split: BoxSplit, index: int) -> tuple[Bytes, list[int]]:
    """Return an image with frames around its boxes, and the class of each box."""
    image = read_shrunk(split.files[index], EXAMPLE_SIDE)
    rows = split.rows_of(index)
    scale = max(image.shape[:2]) / max(int(split.sizes[index].max()), 1)
    labels = split.labels[rows].tolist()
    return draw_boxes(image, split.boxes[rows].astype(np.float64) * scale, labels), labels


def _check_instances(split: InstanceSplit, sampled: set[int], index: int) -> _ImageObjects | None:
    """Check an image, and return its objects if its index is in `sampled`, otherwise None."""
    path, source = split.files[index], split.sources[index]
    decode = needs_decoding(path, index, len(split.files), sampled)
    height, width = check_image(path, source.sizes(), "outlines", decode=decode)
    if index not in sampled:
        return None
    objects = [(each.label, each.area) for each in source.instances(height, width) if not each.ignored]
    return _ImageObjects(objects, max(height, width))


def _measure_instances(split: InstanceSplit, usable: dict[int, _ImageObjects | None]) -> _Measurements:
    """Measure the areas and relative sizes of the objects in the sampled images, and find images with too many of them.

    `usable` maps the index of each usable image to its objects, or to None if it is not in the sample.
    """
    sampled = {index: each for index, each in usable.items() if each is not None}
    # For annotated outlines, the format has reported this already.
    crowded = [
        split.files[index]
        for index, each in sampled.items()
        if len(each.objects) > MAX_INSTANCES and not isinstance(split.sources[index], Outlines)
    ]
    rows = [(label, area, each.longer_side, index) for index, each in sampled.items() for label, area in each.objects]
    labels, areas, longer_sides, images = np.array(rows, np.int64).reshape(-1, 4).T  # the columns, also of no rows
    sides = np.sqrt(areas)
    return _Measurements(Objects(labels, sides, sides / longer_sides, images), len(sampled), crowded)


def _draw_instances(split: InstanceSplit, index: int) -> tuple[Bytes, list[int]]:
    """Return an image with each object in a different color, and the class of each object."""
    path = split.files[index]
    size = read_upright_size(path)
    assert size is not None
    objects = split.sources[index].instances(*size)
    numbers, _ = paint(objects, *size)
    image = read_shrunk(path, EXAMPLE_SIDE)
    plane = np.asarray(Image.fromarray(numbers).resize(image.shape[1::-1], Image.Resampling.NEAREST))
    # In `overlay_mask`, the last number means no class.
    return overlay_mask(image, np.minimum(plane, MAX_INSTANCES - 1)), [each.label for each in objects]
