"""Shapes and flags in JSON files from labelme and X-AnyLabeling, one file per image. Torch-free.

Sources: `label_file.py` and `shape.py` in labelme, and the user guide of X-AnyLabeling, "Label file format".
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.contract.problems import Problem
from engine.data.decoding.reading import Unfit, read_json
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.bitmaps import decode_png, make_patch_shape
from engine.data.formats.shared.boxes import read_upright_size
from engine.data.formats.shared.shape_collection import ShapeCollection, detect_files
from engine.data.formats.shared.shapes import (
    Shape,
    ShapedImage,
    make_box_shape,
    make_ellipse_points,
    make_polygon_shape,
    parse_points,
    parse_size,
)
from engine.data.formats.tree import Tree, split_of_path, stem
from engine.data.splits import count_sentence, dataset_error, dataset_warning, first_names
from engine.system.format import counted

_POLYGONS = frozenset({"polygon", "rotation", "oriented_rectangle", "quadrilateral"})
_OUTLINES = _POLYGONS | {"circle", "mask"}
_SHAPES = _OUTLINES | {"rectangle"}
_WITHOUT_AREA = frozenset({"point", "points", "line", "linestrip", "cuboid"})
Point = tuple[float, float]
_IGNORE = "__ignore__"
"""Label that marks areas without a class in the examples of labelme."""


@dataclass
class _Group:
    """Polygons with the same label and group, which form one object."""

    name: str
    id: str
    ignored: bool
    rings: list[list[Point]] = field(default_factory=list)


def detect(tree: Tree) -> list[Detection]:
    """Detect JSON files in labelme's format.

    The kinds of annotations depend on the shapes and flags in a sample of the files.
    """
    return detect_files(
        tree,
        list(tree.find(".json")),
        "labelme",
        keys=(b'"shapes"', b'"imagePath"'),
        is_valid=_is_labelme,
        shapes_of=_list_types,
        tags_of=_list_set_flags,
        outlines=_OUTLINES,
    )


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their annotations of the given kind.

    For "boxes" and "instances", the shapes are read, and for "classes" and "labels", the flags of the images.
    """
    found = ShapeCollection(tree)
    without_image: list[str] = []
    paths = list(tree.find(".json"))
    images = {path: _find_same_name_image(path, found) for path in paths}
    for path in sorted(paths, key=lambda path: images[path] is None):  # in the order that `find_named` requires
        same_name_image = images[path]
        try:
            content = read_json(tree.path(path))
            if not _is_labelme(content):
                raise Unfit("it is not in labelme's format")
        except (OSError, ValueError) as error:
            if same_name_image is not None:  # other JSON files in the folder may have any content
                found.skip_file(path, error, same_name_image)
            continue
        image_name = content["imagePath"] if isinstance(content["imagePath"], str) else ""
        image = found.find_named(path, same_name_image, image_name, os.path.dirname(path), split_of_path(path))
        if image is None:
            if content.get("imageData"):
                without_image.append(path)
            else:
                found.note_missing(path)
            continue
        size = parse_size(content.get("imageHeight"), content.get("imageWidth"))
        shapes: list[Shape] = []
        if kind in ("boxes", "instances"):
            shapes = _read_shapes(content, path, size or read_upright_size(image), found)
        split = split_of_path(path) or split_of_path(tree.within(image))
        found.add(ShapedImage(image, shapes, size, _list_set_flags(content)), split)
    if without_image:
        found.problems.append(_create_embedded_problem(without_image, has_others=any(found.splits.values())))
    return found.content(kind)


def _create_embedded_problem(files: Sequence[str], *, has_others: bool) -> Problem:
    """Return a warning that some images exist only inside JSON files, or an error if the dataset has no other images.

    `files` are the paths of these JSON files.
    """
    message = f"{count_sentence(files, 'image')} only embedded in JSON files: {first_names(files)}."
    remedy = "Save the images as files next to the JSON files (labelme_export_json)."
    if has_others:
        return dataset_warning(message, f"Such images are left out. {remedy}")
    return dataset_error(message, remedy)


FORMAT = Format(
    id="labelme",
    title="labelme JSON",
    kinds=("instances", "boxes", "classes", "labels"),
    layout="Images and one JSON file of labelme or X-AnyLabeling for each of them under the same name.",
    detect=detect,
    read=read,
)


def _is_labelme(content: Any) -> bool:
    """Return True if the content of a JSON file has the entries that labelme writes."""
    return isinstance(content, dict) and isinstance(content.get("shapes"), list) and "imagePath" in content


def _find_same_name_image(path: str, found: ShapeCollection) -> str | None:
    """Return the full path of the image with the same name as a JSON file, or None if there is none."""
    return found.find(stem(path), os.path.dirname(path), split=split_of_path(path), has_extension=False)


def _list_set_flags(content: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the flags that are set for the image. These are the classes of the image."""
    flags = content.get("flags")
    if not isinstance(flags, dict):
        return ()
    return tuple(name for name in flags if name.strip() and flags[name] is True)


def _read_type(shape: dict[str, Any]) -> str:
    """Return the type of a shape, such as "rectangle". Old files don't state the type and contain only polygons."""
    return str(shape.get("shape_type") or "polygon")


def _list_types(content: dict[str, Any]) -> list[str]:
    """Return the types of the shapes in a file that can be used as annotations."""
    types = [_read_type(shape) for shape in content["shapes"] if isinstance(shape, dict)]
    return [each for each in types if each in _SHAPES]


def _read_shapes(
    content: dict[str, Any], path: str, size: tuple[int, int] | None, found: ShapeCollection
) -> list[Shape]:
    """Convert the shapes in the file `path` to boxes and outlines. Unusable shapes are recorded in `found`.

    Polygons with the same label and group become one object. `size` is the height and width of the image, or None if
    unknown.
    """
    shapes: list[Shape | None] = []
    groups: dict[tuple[str, str], _Group] = {}
    for shape in content["shapes"]:
        shape_type = _read_type(shape) if isinstance(shape, dict) else ""
        if shape_type not in _SHAPES:
            reason = f"drawn as {shape_type}" if shape_type in _WITHOUT_AREA else "of an unknown shape"
            found.skip_object(path, reason)
            continue
        label = shape.get("label")
        if not isinstance(label, str) or not label.strip():
            found.skip_object(path, "without a label")
            continue
        if label == _IGNORE:
            found.skip_object(path, f"labeled {_IGNORE}")
            continue
        try:
            converted = _convert(shape_type, label.strip(), shape, size)
        except Unfit as error:
            found.skip_object(path, "that can't be used", str(error))
            continue
        group = shape.get("group_id")
        if isinstance(converted, Shape):
            shapes.append(converted)
        elif group is None:
            shapes.append(make_polygon_shape(label.strip(), converted, ignored=_is_difficult(shape)))
        else:
            key = (label.strip(), str(group))
            groups.setdefault(key, _Group(*key, _is_difficult(shape))).rings.append(converted)
    for each in groups.values():
        shapes.append(make_polygon_shape(each.name, *each.rings, ignored=each.ignored))
    return [shape for shape in shapes if shape is not None]


def _is_difficult(shape: dict[str, Any]) -> bool:
    """Return True if a shape has the flag for difficult objects, which X-AnyLabeling writes."""
    return shape.get("difficult") is True


def _convert(shape_type: str, name: str, shape: dict[str, Any], size: tuple[int, int] | None) -> Shape | list[Point]:
    """Convert a shape to a box or an outline of the class `name`, or return the points of a polygon or circle.

    The points may become a part of an object with several polygons. `size` is the height and width of the image, or
    None if unknown. Raises Unfit if the shape is invalid.
    """
    points = parse_points(shape.get("points"))
    if len(points) < (3 if shape_type in _POLYGONS else 2):
        raise Unfit(f"its {shape_type} has {counted(len(points), 'point')}")
    if shape_type in _POLYGONS:
        return points
    if shape_type == "circle":
        center, point_on_circle = points[:2]
        radius = math.dist(center, point_on_circle)
        if not radius:
            raise Unfit("its circle has no radius")
        return make_ellipse_points(*center, radius, radius)
    x, y = zip(*points, strict=True)  # those of opposite corners
    if shape_type == "mask":
        return _read_mask(name, shape, (min(x), min(y)), size)
    return make_box_shape(name, min(x), min(y), max(x), max(y), ignored=_is_difficult(shape))


def _read_mask(name: str, shape: dict[str, Any], corner: Point, size: tuple[int, int] | None) -> Shape:
    """Convert an embedded mask, whose upper left corner is at `corner` in the image, to a shape of the class `name`.

    `size` is the height and width of the image. Raises Unfit if it is None or the mask is invalid.
    """
    if size is None:
        raise Unfit("the size of its image is unknown")
    inside = decode_png(shape.get("mask"), size)
    return make_patch_shape(name, inside, round(corner[0]), round(corner[1]), size, ignored=_is_difficult(shape))
