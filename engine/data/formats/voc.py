"""Boxes in XML files, one for each image, as PASCAL VOC keeps them (its development kit, section 4.1); so do
labelImg, CVAT, Roboflow and ArcGIS's PASCAL_VOC_rectangles. Torch-free.

Edges are taken as they stand, counted from the image's left and top. PASCAL's own count pixels from 1, most tools
since do not; the difference is a pixel on two sides.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from engine.data.decoding.reading import Unfit, finite, read_xml
from engine.data.formats.boxes import Annotations, Box, Marked
from engine.data.formats.pairing import (
    XML,
    Pair,
    by_lists,
    classes_of,
    endings,
    find_pairs,
    join,
    named,
    parse_all,
    probe,
    without_counterpart,
)
from engine.data.splits import counted, first, warn
from engine.system.regular_files import UnusableFile


class _Object(NamedTuple):
    name: str
    edges: tuple[float, float, float, float]
    difficult: bool


class _Parsed(NamedTuple):
    path: str
    size: tuple[int, int] | None
    objects: list[_Object]
    boxless: int


def read_voc(folder: str, folders: Sequence[str]) -> Annotations | None:
    """The images and boxes in `folder`, whose folders are `folders`; None where it is not of that kind."""
    pairs = _by_lists(folder, folders) or find_pairs(folder, folders, XML)
    about = [pair.annotations for pair in pairs.values()]
    if not any(probe(each, endings(each, ".xml"), _is_voc) for each in about):
        return None
    joined = {split: join(pair, XML) for split, pair in pairs.items()}
    problems = without_counterpart(joined.values(), alone_left_out=True)
    parsed, unparsed = parse_all(joined, _parse)
    problems += unparsed
    boxless = [content.path for contents in parsed.values() for _, content in contents for _ in range(content.boxless)]
    if boxless:
        message = f"{counted(boxless, 'object')} without a box (bndbox), in {first(boxless)}."
        problems.append(warn(message, "They are left out; save them as upright boxes."))
    names = {each.name for contents in parsed.values() for _, content in contents for each in content.objects}
    classes, indices = classes_of(folder, names)
    splits = {
        split: [
            Marked(
                image,
                [Box(*each.edges, indices[each.name], each.difficult) for each in content.objects],
                content.size,
            )
            for image, content in contents
        ]
        for split, contents in parsed.items()
    }
    return Annotations(classes, splits, problems)


def _by_lists(folder: str, folders: Sequence[str]) -> dict[str, Pair]:
    """JPEGImages, Annotations, and lists of names in ImageSets/Main."""
    images, about = named(folders, ("jpegimages",)), named(folders, ("annotations",))
    if images is None or about is None:
        return {}
    images, about = os.path.join(folder, images), os.path.join(folder, about)
    return by_lists(images, about, os.path.join(folder, "ImageSets", "Main"), ("train", "val", "test"))


def _is_voc(path: str) -> bool | None:
    """Whether a file is of this format; None where it is no XML."""
    try:
        return read_xml(path).tag == "annotation"
    except UnusableFile:
        raise
    except (OSError, ValueError):
        return None


def _parse(path: str) -> _Parsed:
    """The contents of a file. Raises as `read_xml`, and Unfit for invalid numbers."""
    root = read_xml(path)
    height, width = (_number(root, f"size/{side}") for side in ("height", "width"))
    objects = []
    boxless = 0
    for each in root.iterfind("object"):
        edges = [_number(each, f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax")]
        left, top, right, bottom = edges
        if left is None or top is None or right is None or bottom is None:
            boxless += 1
            continue
        name = (each.findtext("name") or "").strip() or "unnamed"
        objects.append(_Object(name, (left, top, right, bottom), _number(each, "difficult") == 1))
    return _Parsed(path, (int(height), int(width)) if height and width else None, objects, boxless)


def _number(element: ElementTree.Element, path: str) -> float | None:
    text = element.findtext(path)
    if text is None or not text.strip():
        return None
    number = finite(text)
    if number is None:
        raise Unfit(f"{path} is {text.strip()[:40]}, which is not a number")
    return number
