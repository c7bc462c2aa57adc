"""Images with named shapes, the common form for most annotation tools, and their conversion to splits. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np

from engine.contract.problems import Problem
from engine.data.decoding.reading import MAX_PIXELS, Unfit
from engine.data.files import Files, make_files
from engine.data.formats.format import Content
from engine.data.formats.shared.boxes import Box, BoxedImage
from engine.data.formats.shared.instances import MAX_INSTANCES, InstanceSplit, Outlines, warn_about_crowds
from engine.data.splits import FileSplit, LabelSplit, printable, warn_about
from engine.system.format import counted

_MAX_COORDINATE = 1e9
"""Maximum absolute value of a coordinate. It is larger than any image, and small enough for calculations."""
Edges = tuple[float, float, float, float]


class Shape(NamedTuple):
    """Annotated object in an image.

    Attributes:
        name: Class of the object.
        box: Left, top, right and bottom in pixels.
        outline: COCO `segmentation` as JSON, or None if the object has only a box.
        ignored: True for crowds and difficult objects, which are neither learned nor counted as missed.
    """

    name: str
    box: Edges
    outline: msgspec.Raw | None = None
    ignored: bool = False


@dataclass
class ShapedImage:
    """Image with annotations of any kind.

    Attributes:
        path: Full path of the image.
        size: Height and width of the image according to its annotations, or None if they don't state a size.
        tags: Classes of the entire image.
        fractions: True if the boxes are fractions of the image's width and height.
    """

    path: str
    shapes: list[Shape] = field(default_factory=list)
    size: tuple[int, int] | None = None
    tags: tuple[str, ...] = ()
    fractions: bool = False


def make_box_shape(name: str, left: float, top: float, right: float, bottom: float, *, ignored: bool = False) -> Shape:
    """Create a shape from the edges of a box, whose opposite edges may be swapped."""
    return Shape(name, (min(left, right), min(top, bottom), max(left, right), max(top, bottom)), ignored=ignored)


def make_polygon_shape(name: str, *rings: Iterable[tuple[float, float]], ignored: bool = False) -> Shape | None:
    """Create a shape that consists of the pixels inside any of the `rings`, each given by points (x, y) in pixels.

    Returns None if no ring has three points.
    """
    flat = [[value for point in ring for value in point] for ring in rings]
    flat = [ring for ring in flat if len(ring) >= 6 and np.isfinite(ring).all()]
    if not flat:
        return None
    x = [value for ring in flat for value in ring[::2]]
    y = [value for ring in flat for value in ring[1::2]]
    return Shape(name, (min(x), min(y), max(x), max(y)), msgspec.Raw(msgspec.json.encode(flat)), ignored)


def make_required_polygon(name: str, points: Sequence[tuple[float, float]]) -> Shape:
    """Create a shape from the points (x, y) of its outline, in pixels. Raises Unfit if there are fewer than three."""
    shape = make_polygon_shape(name, points)
    if shape is None:
        raise Unfit(f"it has {counted(len(points), 'point')}")
    return shape


def make_rotated_box(name: str, edges: Edges, degrees: float, center: tuple[float, float]) -> Shape:
    """Create a shape from a box, given by its edges, that is rotated clockwise around a center."""
    left, top, right, bottom = edges
    if not degrees % 360:
        return make_box_shape(name, *edges)
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    return make_required_polygon(name, rotate_points(corners, degrees, center))


def parse_number(value: Any) -> float | None:
    """Convert a number from JSON or XML, or a text that contains a number, to a float.

    Returns None for anything that can't be a coordinate.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= _MAX_COORDINATE else None


def parse_size(height: Any, width: Any) -> tuple[int, int] | None:
    """Convert the height and width from JSON or XML to an image size. Returns None if it is invalid."""
    parsed_height, parsed_width = parse_number(height), parse_number(width)
    if parsed_height is None or parsed_width is None:
        return None
    size = int(parsed_height), int(parsed_width)
    return size if min(size) > 0 and max(size) <= MAX_PIXELS else None


def parse_points(value: Any) -> list[tuple[float, float]]:
    """Convert a list of [x, y] from JSON to points. Raises Unfit if an entry is not a pair of numbers."""
    fault = "its points are not pairs of numbers"
    if not isinstance(value, list):
        raise Unfit(fault)
    points = []
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise Unfit(fault)
        x, y = map(parse_number, pair)
        if x is None or y is None:
            raise Unfit(fault)
        points.append((x, y))
    return points


def convert(
    kind: str,
    splits: Mapping[str, Sequence[ShapedImage]],
    problems: list[Problem],
    classes: Sequence[str] | None = None,
) -> Content:
    """Convert annotated images to splits with one kind of annotations: "boxes", "instances", "classes" or "labels".

    `classes` are the class names in the order of the format, or None to sort the names that occur. Problems with the
    conversion are appended to `problems`.
    """
    names = list_class_names(kind, (image for split in splits.values() for image in split))
    order = list(dict.fromkeys([*(classes or ()), *sorted(names)]))
    numbers = {name: number for number, name in enumerate(order)}
    make = {
        "boxes": _convert_boxes,
        "instances": _convert_instances,
        "classes": _convert_classes,
        "labels": _convert_labels,
    }[kind]
    converted = {name: make(split, numbers, problems) for name, split in splits.items()}
    return Content(tuple(map(printable, order)), converted, problems)


def rename_classes(images: Iterable[ShapedImage], titles: Mapping[str, str]) -> None:
    """Replace the names of the classes in all images with their `titles`. Classes without a title are not changed."""
    for image in images:
        image.shapes = [shape._replace(name=titles.get(shape.name, shape.name)) for shape in image.shapes]
        image.tags = tuple(dict.fromkeys(titles.get(tag, tag) for tag in image.tags))


def list_class_names(kind: str, images: Iterable[ShapedImage]) -> set[str]:
    """Return the names of the classes in images: those of objects for "boxes" and "instances", otherwise tags."""
    if kind in ("boxes", "instances"):
        return {shape.name for image in images for shape in image.shapes}
    return {tag for image in images for tag in image.tags}


def _convert_boxes(
    images: Sequence[ShapedImage], numbers: Mapping[str, int], problems: list[Problem]
) -> list[BoxedImage]:
    """Convert annotated images to images with boxes. `numbers` are the class numbers by name."""
    return [
        BoxedImage(
            image.path,
            [Box(*each.box, numbers[each.name], each.ignored) for each in image.shapes],
            image.size,
            image.fractions,
        )
        for image in images
    ]


def _convert_instances(
    images: Sequence[ShapedImage], numbers: Mapping[str, int], problems: list[Problem]
) -> InstanceSplit:
    """Convert annotated images to a split with outlined objects. `numbers` are the class numbers by name.

    Objects without an outline are left out. Warnings about them, and about images with too many objects, are appended
    to `problems`.
    """
    without_outline = [image.path for image in images for shape in image.shapes if shape.outline is None]
    remedy = "Such objects are left out; draw outlines, or choose the task Object detection."
    problems += warn_about(without_outline, "object", "without an outline, in", remedy)
    problems += warn_about_crowds([image.path for image in images if len(image.shapes) > MAX_INSTANCES])
    sources = [
        Outlines(
            [(numbers[each.name], each.outline, each.ignored) for each in image.shapes if each.outline is not None],
            image.size,
        )
        for image in images
    ]
    return InstanceSplit([image.path for image in images], sources)


def _convert_classes(images: Sequence[ShapedImage], numbers: Mapping[str, int], problems: list[Problem]) -> FileSplit:
    """Convert the images with exactly one tag to a split of classes. `numbers` are the class numbers by tag.

    The other images are left out, and warnings about them are appended to `problems`.
    """
    with_class = [image for image in images if len(image.tags) == 1]
    without_class = [image.path for image in images if not image.tags]
    with_several = [image.path for image in images if len(image.tags) > 1]
    problems += warn_about(without_class, "image", "without a class:", "Such images are left out.")
    remedy = "Such images are left out; choose the task Multi-label classification to use them."
    problems += warn_about(with_several, "image", "with several classes:", remedy)
    labels = np.array([numbers[image.tags[0]] for image in with_class], np.int64)
    return FileSplit(make_files([image.path for image in with_class]), labels, strays=Files.of())


def _convert_labels(images: Sequence[ShapedImage], numbers: Mapping[str, int], problems: list[Problem]) -> LabelSplit:
    """Convert annotated images to a split of labels. `numbers` are the label numbers by tag."""
    has_label = np.zeros((len(images), len(numbers)), np.bool_)
    for row, image in enumerate(images):
        has_label[row, [numbers[tag] for tag in image.tags]] = True
    return LabelSplit([image.path for image in images], has_label)


def rotate_points(
    points: Sequence[tuple[float, float]], degrees: float, center: tuple[float, float]
) -> list[tuple[float, float]]:
    """Rotate points (x, y) around a center, clockwise if the y axis points down."""
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    x0, y0 = center
    return [(x0 + (x - x0) * cosine - (y - y0) * sine, y0 + (x - x0) * sine + (y - y0) * cosine) for x, y in points]


def make_ellipse_points(x: float, y: float, radius_x: float, radius_y: float) -> list[tuple[float, float]]:
    """Convert an ellipse with the center (x, y) to the points of a polygon.

    The polygon touches the ellipse's bounding box on all four sides.
    """
    angles = [math.radians(degrees) for degrees in range(0, 360, 5)]
    return [(x + radius_x * math.cos(angle), y + radius_y * math.sin(angle)) for angle in angles]
