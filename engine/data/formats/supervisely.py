"""Objects and tags in Supervisely projects: meta.json, and one JSON file per image in each dataset. Torch-free.

Source: documentation of Supervisely, "Supervisely format", "Objects" and "Tags". Coordinates are used unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from engine.data.decoding.image_files import is_image
from engine.data.decoding.limits import Size, Unfit
from engine.data.decoding.reading import read_json
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.bitmaps import decode_png, make_patch_shape
from engine.data.formats.shared.shape_collection import ShapeCollection, detect_files
from engine.data.formats.shared.shapes import (
    Shape,
    ShapedImage,
    make_box_shape,
    make_required_polygon,
    parse_points,
    parse_size,
)
from engine.data.formats.tree import Tree, split_named, split_of_path, stem
from engine.system.format import counted

_OUTLINES = frozenset({"polygon", "bitmap"})
_WITHOUT_AREA = frozenset({"line", "point", "graph", "cuboid", "cuboid_2d", "any", "multichannel_spectrogram"})

Point = tuple[float, float]


def detect(tree: Tree) -> list[Detection]:
    """Detect JSON files in Supervisely's format.

    The kinds of annotations depend on the shapes and tags in a sample of the files.
    """
    return detect_files(
        tree,
        _find_files(tree),
        "Supervisely in folders ann",
        keys=(b'"objects"', b'"size"'),
        is_valid=_is_annotation,
        shapes_of=_list_geometries,
        tags_of=_read_labels,
        outlines=_OUTLINES,
    )


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their annotations of the given kind.

    For "boxes" and "instances", the shapes are read, and for "classes" and "labels", the tags. The split comes from the
    folder or, if it names none, from a tag such as "train".
    """
    found = ShapeCollection(tree)
    classes, tags = _read_declared(tree)
    for path in _find_files(tree):
        # DATASET/ann/NAME.jpg.json describes DATASET/img/NAME.jpg.
        dataset = os.path.dirname(os.path.dirname(path))
        name = stem(path)
        folder_split = split_of_path(path)
        image = found.find(name, os.path.join(dataset, "img"), split=folder_split, has_extension=is_image(name))
        try:
            content = read_json(tree.path(path))
            if not _is_annotation(content):
                raise Unfit("it is not in Supervisely's format")
        except (OSError, ValueError) as error:
            found.skip_file(path, error, image)
            continue
        if image is None:
            found.note_missing(path)
            continue
        image_tags = _read_tags(content)
        split = folder_split or next(filter(None, map(split_named, image_tags)), "")
        size = parse_size(content["size"].get("height"), content["size"].get("width"))
        shapes = _read_shapes(content["objects"], path, size, found) if kind in ("boxes", "instances") else []
        found.add(ShapedImage(image, shapes, size, tuple(_read_labels(content))), split)
    return found.content(kind, classes if kind in ("boxes", "instances") else tags)


FORMAT = Format(
    id="supervisely",
    title="Supervisely project",
    kinds=("instances", "boxes", "classes", "labels"),
    layout="A project of Supervisely: meta.json, and for each data set a folder with the folders img and ann.",
    detect=detect,
    read=read,
)


def _find_files(tree: Tree) -> list[str]:
    """Return the annotation files in all datasets of all projects, relative to the dataset folder."""
    return [
        os.path.join(folder, name)
        for folder in tree.walk()
        if os.path.basename(folder) == "ann" and tree.exists(os.path.join(os.path.dirname(folder), "img"))
        for name in tree.files(folder, ".json")
    ]


def _is_annotation(content: Any) -> bool:
    """Return True if the content of a JSON file has the objects and the size of an image."""
    if not isinstance(content, dict):
        return False
    return isinstance(content.get("objects"), list) and isinstance(content.get("size"), dict)


def _read_declared(tree: Tree) -> tuple[list[str], list[str]]:
    """Return the names of classes and the names of tags in the order of meta.json."""
    found: dict[str, list[str]] = {"classes": [], "tags": []}
    for folder in tree.walk(depth=1):
        if "meta.json" not in tree.files(folder, ".json"):
            continue
        try:
            content = read_json(tree.path(folder, "meta.json"))
        except (OSError, ValueError):
            continue  # the file is only needed for the order of classes
        for key, name_key in (("classes", "title"), ("tags", "name")):
            listed = content.get(key) if isinstance(content, dict) else None
            entries = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
            found[key] += [each[name_key] for each in entries if isinstance(each.get(name_key), str)]
    return found["classes"], found["tags"]


def _read_tags(content: dict[str, Any]) -> list[str]:
    """Return the tags of an image. A tag with a value becomes "name: value"."""
    listed = content.get("tags")
    found: dict[str, None] = {}
    for each in listed if isinstance(listed, list) else ():
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str) and name.strip():
            value = each.get("value")
            found[name.strip() if value in (None, "") else f"{name.strip()}: {value}"] = None
    return list(found)


def _read_labels(content: dict[str, Any]) -> list[str]:
    """Return the tags of an image that are not names of splits."""
    return [tag for tag in _read_tags(content) if not split_named(tag)]


def _list_geometries(content: dict[str, Any]) -> set[str]:
    """Return the types of the shapes in an annotation file."""
    return {_read_shape_type(each) for each in content["objects"] if isinstance(each, dict)}


def _read_shape_type(entry: dict[str, Any]) -> str:
    """Return the type of a shape, such as "rectangle".

    Old projects don't state the type, but contain only bitmaps and polygons.
    """
    shape_type = entry.get("geometryType")
    if isinstance(shape_type, str):
        return shape_type
    return "bitmap" if entry.get("bitmap") else "polygon"


def _read_shapes(entries: list[Any], path: str, size: Size | None, found: ShapeCollection) -> list[Shape]:
    """Return the usable shapes among the objects of an annotation file. The others are recorded in `found`.

    `path` is the annotation file, and `size` the height and width of its image, or None if unknown.
    """
    shapes: list[Shape] = []
    for entry in entries:
        label = entry.get("classTitle") if isinstance(entry, dict) else None
        if not isinstance(label, str) or not label.strip():
            found.skip_object(path, "without a class")
            continue
        shape_type = _read_shape_type(entry)
        if shape_type not in _READERS:
            reason = f"drawn as {shape_type}" if shape_type in _WITHOUT_AREA else "of an unknown shape"
            found.skip_object(path, reason)
            continue
        try:
            shapes.append(_READERS[shape_type](label.strip(), entry, size))
        except Unfit as error:
            found.skip_object(path, "that can't be used", f"{shape_type} {label}: {error}")
    return shapes


def _iterate_rings(entry: dict[str, Any]) -> Iterator[list[Point]]:
    """Yield the points (x, y) of an object's outer ring, and then those of each hole. Raises Unfit for invalid points."""
    points = entry.get("points")
    points = points if isinstance(points, dict) else {}
    interior = points.get("interior")
    yield from map(parse_points, [points.get("exterior"), *(interior if isinstance(interior, list) else [])])


def _make_polygon(label: str, entry: dict[str, Any], size: Size | None) -> Shape:
    """Convert an outline with holes to a single ring that runs to each hole and back.

    The connecting lines have no area. Raises Unfit if the outline has fewer than three points.
    """
    outer, *holes = _iterate_rings(entry)
    if len(outer) < 3:
        raise Unfit(f"it has {counted(len(outer), 'point')}")
    ring = list(outer)
    for hole in holes:
        if len(hole) >= 3:
            ring += [outer[0], *hole, hole[0]]
    return make_required_polygon(label, ring)


def _make_rectangle(label: str, entry: dict[str, Any], size: Size | None) -> Shape:
    """Return the smallest box around the outer ring of an annotation. Raises Unfit if it has fewer than two points."""
    corners = next(_iterate_rings(entry))
    if len(corners) < 2:
        raise Unfit(f"it has {counted(len(corners), 'point')}")
    x, y = zip(*corners, strict=True)
    return make_box_shape(label, min(x), min(y), max(x), max(y))


def _make_bitmap(label: str, entry: dict[str, Any], size: Size | None) -> Shape:
    """Convert an object with an embedded PNG to a shape. Raises Unfit if it is invalid or the image's `size` is None."""
    bitmap = entry.get("bitmap")
    bitmap = bitmap if isinstance(bitmap, dict) else {}
    ((left, top),) = parse_points([bitmap.get("origin")])
    if size is None:
        raise Unfit("the size of its image is unknown")
    inside = decode_png(bitmap.get("data"), size)
    return make_patch_shape(label, inside, int(left), int(top), size)


_READERS: dict[str, Callable[[str, dict[str, Any], Size | None], Shape]] = {
    "polygon": _make_polygon,
    "rectangle": _make_rectangle,
    "bitmap": _make_bitmap,
}
