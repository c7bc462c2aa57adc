"""Boxes in Create ML JSON: a list of images with labels, and boxes given by their centers. Torch-free.

See https://developer.apple.com/documentation/createml/building-an-object-detector-data-source.
"""

from __future__ import annotations

from typing import Any

import msgspec

from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.annotation_files import AnnotationReader
from engine.data.formats.shared.box_units import check_units
from engine.data.formats.shared.json_files import MAX_FILES, EntryFaults, Fault, find_json_files, parse_items, read_head
from engine.data.formats.shared.shapes import Shape, ShapedImage, convert, make_box_shape, parse_number
from engine.data.formats.tree import Tree
from engine.data.splits import first_names

REMEDY = "Export the file again in Create ML's format."
_NAMES = ("image", "imagefilename", "imageFilename", "imageFileName", "filename", "file_name", "imageURL", "path")
_LISTS = ("annotations", "annotation", "objects", "labels")
_LABELS = ("label", "class", "name", "identifier")
_COORDINATES = ("coordinates", "boundingBox", "bounding_box")
_SIDES = ("x", "y", "width", "height")

_NAMELESS = Fault("entry without the name of an image", "entries without the name of an image")
_NO_BOX = Fault(
    "object without a label, or without the four numbers of a box",
    "objects without a label, or without the four numbers of a box",
    "Such objects are left out; each needs a label and coordinates with x, y, width and height.",
)

_DECODER = msgspec.json.Decoder(list[msgspec.Raw])
_ENTRY = msgspec.json.Decoder(dict[str, Any])


def detect(tree: Tree) -> list[Detection]:
    """Detect JSON files that list images with labels and coordinates."""
    files = [
        name for names in find_json_files(tree).values() for name in names[:MAX_FILES] if _is_createml(tree.path(name))
    ]
    if not files:
        return []
    return [
        Detection(("boxes",), Confidence.CERTAIN, (f"boxes in Create ML's format: {first_names(files)}",), source=files)
    ]


def _is_createml(path: str) -> bool:
    """Return True if one of the first entries in a JSON list names an image and has an object with coordinates."""
    text = read_head(path).lstrip()
    if not text.startswith("["):
        return False
    entries = parse_items(text, start=1, count=50)
    named = [entry for entry in entries if isinstance(entry, dict) and isinstance(_get_first(entry, _NAMES), str)]
    lists = [annotations for entry in named if isinstance(annotations := _get_first(entry, _LISTS), list)]
    objects = [each for annotations in lists for each in annotations if isinstance(each, dict)]
    return any(
        isinstance(_get_first(each, _COORDINATES), dict) and _get_first(each, _LABELS) is not None for each in objects
    )


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their boxes from all JSON files of CreateML.

    Several entries for one image are merged.
    """
    files: AnnotationReader[ShapedImage] = AnnotationReader(tree, detection.source)
    for split, name in files.iterate_files():
        faults = EntryFaults(name)
        found: dict[str, ShapedImage] = {}
        entries = files.decode(name, _DECODER, REMEDY)
        for place, entry in faults.decode_each(_ENTRY, entries or (), ""):
            file = _get_first(entry, _NAMES)
            if not isinstance(file, str):
                faults.add(_NAMELESS, place)
            elif (path := files.find(file, name, split)) is not None:
                image = found.setdefault(path, ShapedImage(path))
                image.shapes += _read_shapes(_get_first(entry, _LISTS), place, faults)
        files.add(split, [found[path] for path in sorted(found)])
        files.problems += faults.problems()
    images = files.finish()
    check_units(images, files.problems, anchor="center")  # changes the images, and adds problems
    return convert(kind, images, files.problems)


def _read_shapes(annotations: Any, place: str, faults: EntryFaults) -> list[Shape]:
    """Return the boxes in the annotations of an image. Invalid ones are added to `faults`.

    `place` is the position of the image's entry in the file. CreateML stores the center of a box and its size.
    """
    shapes = []
    for number, each in enumerate(annotations if isinstance(annotations, list) else ()):
        entry = each if isinstance(each, dict) else {}
        label, box = _get_first(entry, _LABELS), _get_first(entry, _COORDINATES)
        numbers = [parse_number(box.get(side)) for side in _SIDES] if isinstance(box, dict) else []
        sides = [number for number in numbers if number is not None]
        has_label = isinstance(label, str | int | float) and label != ""
        if not has_label or len(sides) < len(_SIDES):
            faults.add(_NO_BOX, f"{place}.annotations[{number}]")
            continue
        x, y, width, height = sides
        shapes.append(make_box_shape(str(label), x - width / 2, y - height / 2, x + width / 2, y + height / 2))
    return shapes


def _get_first(entry: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """Return the value of the first of `keys` that exists in `entry`, or None if none exists."""
    return next((entry[key] for key in keys if key in entry), None)


FORMAT = Format(
    "createml",
    "Create ML JSON",
    ("boxes",),
    "JSON files that list images with annotations, each a label and coordinates around a center, next to the images.",
    detect,
    read,
)
