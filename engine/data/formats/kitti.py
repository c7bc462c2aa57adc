"""Boxes in text files as KITTI keeps them (the readme of its object development kit), and ArcGIS's KITTI_rectangles
after it: a line for each box with its class, its left, top, right and bottom in the fifth to the eighth field.
Torch-free."""

from __future__ import annotations

import os
from collections.abc import Sequence

from engine.data.decoding.reading import Unfit, read_number, read_text
from engine.data.formats.boxes import ANY_CLASS, Annotations, Box, Marked
from engine.data.formats.folders import subfolders
from engine.data.formats.pairing import (
    TEXTS,
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
from engine.system.regular_files import UnusableFile

FIELDS = (15, 16)
"""Words in a line; the last is how sure a detector was."""
DO_NOT_CARE = "DontCare"
"""The class of regions in which nothing was marked, and so nothing is to be judged."""

Row = tuple[str, tuple[float, float, float, float]]


def read_kitti(folder: str, folders: Sequence[str]) -> Annotations | None:
    """The images and boxes in `folder`, whose folders are `folders`; None where it is not of that kind."""
    pairs = _as_published(folder, folders) or find_pairs(folder, folders, TEXTS)
    about = [pair.annotations for pair in pairs.values()]
    if not any(probe(each, endings(each, ".txt"), _is_kitti) for each in about):
        return None
    joined = {split: join(pair, TEXTS) for split, pair in pairs.items()}
    problems = without_counterpart(joined.values(), alone_left_out=True)
    parsed, unparsed = parse_all(joined, _parse)
    problems += unparsed
    names = {name for images in parsed.values() for _, rows in images for name, _ in rows} - {DO_NOT_CARE}
    classes, indices = classes_of(folder, names)
    indices[DO_NOT_CARE] = ANY_CLASS
    splits = {
        split: [
            Marked(image, [Box(*edges, indices[name], name == DO_NOT_CARE) for name, edges in rows])
            for image, rows in images
        ]
        for split, images in parsed.items()
    }
    return Annotations(classes, splits, problems)


def _as_published(folder: str, folders: Sequence[str]) -> dict[str, Pair]:
    """image_2 and label_2, in the folder or in training, and the lists of names that many use to divide them."""
    root = folder
    if "training" in folders:
        root = os.path.join(folder, "training")
        folders = [*folders, *subfolders(root)]
    images, about = named(folders, ("image_2",)), named(folders, ("label_2",))
    if images is None or about is None:
        return {}
    images, about = os.path.join(root, images), os.path.join(root, about)
    return by_lists(images, about, os.path.join(folder, "ImageSets"), ("train", "val", "test"))


def _is_kitti(path: str) -> bool | None:
    """Whether a file is of this format; None where it has no lines, or only such as points of an outline in
    fractions, which may be as many."""
    try:
        return any(max(edges) > 1 for _, edges in _parse(path)) or None
    except UnusableFile:
        raise
    except (OSError, ValueError):
        return False


def _parse(path: str) -> list[Row]:
    """Class and edges of each box. Raises UnusableFile, OSError, or Unfit for lines that are of no such kind."""
    rows = []
    text = read_text(path)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if len(words) not in FIELDS:
            raise Unfit(f"line {number} has {len(words)} fields; a box needs {FIELDS[0]}")
        left, top, right, bottom = (read_number(word, number) for word in words[4:8])
        rows.append((words[0], (left, top, right, bottom)))
    return rows
