"""Text files with boxes in KITTI format, one per image, and KITTI_rectangles from ArcGIS. Torch-free.

The first field of each line is the class, and the fifth to eighth fields are left, top, right and bottom of the box
(readme in KITTI's object development kit).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from engine.contract.problems import Problem
from engine.data.decoding.image_files import is_image
from engine.data.decoding.reading import MAX_TABLE_BYTES, Unfit, read_number, read_text_lines
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.boxes import ANY_CLASS, Box, BoxedImage
from engine.data.formats.shared.class_numbers import number_classes
from engine.data.formats.shared.text_files import (
    Pair,
    Parsed,
    TextFiles,
    detect_texts,
    divide_by_lists,
    pair_by_folder,
    parse_lines,
    read_annotated,
)
from engine.data.formats.tree import Tree, stem
from engine.data.splits import warn_about
from engine.system.format import counted

FIELDS = (15, 16)
"""Possible numbers of words in a line. With 16 words, the last one is the confidence of a detector."""
DO_NOT_CARE = "DontCare"
"""Class name that marks regions without annotations."""
NOT_ANNOTATIONS = frozenset(
    {"classes.txt", "readme.txt", "train.txt", "val.txt", "test.txt", "trainval.txt", "map.txt"}
)


class Row(NamedTuple):
    """Line in a text file: the class of an object and the edges of its box in pixels."""

    name: str
    edges: tuple[float, float, float, float]


def detect(tree: Tree) -> list[Detection]:
    """Detect text files if most of their lines have the form of KITTI."""
    return detect_texts(tree, NOT_ANNOTATIONS, _parse_pixels, ("boxes",), "lines of 15 fields")


def _parse_pixels(path: str) -> Parsed[Row]:
    """Parse a text file and return the boxes that are given in pixels.

    Boxes in fractions become faults, since lines with YOLO outlines may have the same number of values.
    """
    parsed = parse(path)
    in_pixels = [row for row in parsed.rows if max(row.edges) > 1]
    fractions = [f"{row.name} is in fractions of the image" for row in parsed.rows if max(row.edges) <= 1]
    return Parsed(in_pixels, [*parsed.faults, *fractions])


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their boxes. Boxes of the class DontCare become regions to ignore for every class."""
    by_folder = pair_by_folder(tree, TextFiles(tree))
    problems: list[Problem] = []
    splits = _divide_by_lists(tree, by_folder, problems)
    parsed, other_problems = read_annotated(tree, by_folder, splits, parse, NOT_ANNOTATIONS)
    class_names = {row.name for images in parsed.values() for _, rows in images for row in rows} - {DO_NOT_CARE}
    classes, numbers = number_classes(tree.root, class_names)
    numbers[DO_NOT_CARE] = ANY_CLASS
    boxed = {
        split: [
            BoxedImage(image, [Box(*row.edges, numbers[row.name], row.name == DO_NOT_CARE) for row in rows])
            for image, rows in images
        ]
        for split, images in parsed.items()
    }
    return Content(classes, boxed, [*problems, *other_problems])


def _divide_by_lists(tree: Tree, splits: dict[str, list[Pair]], problems: list[Problem]) -> Mapping[str, list[Pair]]:
    """Divide the images into splits by files that list image names, such as ImageSets/train.txt.

    Many users add such files to KITTI. Without them, `splits` is returned. Problems with the files are appended to
    `problems`.
    """
    lists: dict[str, frozenset[str]] = {}
    parents = ("", *tree.named(("training",)))
    list_folders = [(parent, name) for parent in parents for name in tree.named(("imagesets",), parent)]
    for parent, name in list_folders:
        for split in ("train", "trainval", "val", "test"):
            names = _read_names(tree.path(parent, name, f"{split}.txt"))
            if names is not None:
                lists.setdefault(split, names)
    training_and_validation = lists.pop("trainval", None)
    if training_and_validation is not None:
        lists.setdefault("train", training_and_validation - lists.get("val", frozenset()))
    if "train" not in lists:
        return splits
    found = divide_by_lists(splits, lists)
    present = {stem(pair.image) for pairs in found.values() for pair in pairs}
    missing = sorted(frozenset[str]().union(*lists.values()) - present)
    remedy = "Such images are left out; add them to the folder, or remove them from the list."
    problems += warn_about(missing, "image", "named in a list but not in the folder:", remedy)
    return found


def parse(path: str) -> Parsed[Row]:
    """Parse a text file in KITTI format and return its boxes. Raises UnusableFile or OSError."""
    return parse_lines(path, _parse_line)


def _parse_line(line: str, number: int) -> Row | None:
    """Return the object in line `number` of a file, or None if the line is blank. Raises Unfit for any other line."""
    tokens = line.split()
    if not tokens:
        return None
    if len(tokens) not in FIELDS:
        raise Unfit(f"line {number} has {counted(len(tokens), 'field')}; a box needs {FIELDS[0]}")
    left, top, right, bottom = (read_number(token, number) for token in tokens[4:8])
    return Row(tokens[0], (left, top, right, bottom))


FORMAT = Format(
    "kitti",
    "KITTI text files",
    ("boxes",),
    "A folder image_2 (or images) and a folder label_2 (or labels) with a text file of the same name for each image.",
    detect,
    read,
)


def _read_names(path: str) -> frozenset[str] | None:
    """Return the names in a list of images, without folders and extensions.

    A name is the first word in a line. It is only shortened if it has a folder or the extension of an image. Returns
    None if the list is missing.
    """
    try:
        tokens = [line.split(maxsplit=1)[0] for line in read_text_lines(path, MAX_TABLE_BYTES)]
    except OSError:
        return None
    return frozenset(stem(token) if "/" in token or is_image(token) else token for token in tokens)
