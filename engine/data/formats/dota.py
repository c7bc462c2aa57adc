"""Text files in DOTA format, one per image. Each line has four corners, a class and a difficulty. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from engine.data.decoding.reading import Unfit, parse_finite, read_number
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.shapes import Shape, ShapedImage, convert, make_polygon_shape
from engine.data.formats.shared.text_files import (
    Parsed,
    TextFiles,
    detect_texts,
    pair_by_folder,
    parse_lines,
    read_annotated,
)
from engine.data.formats.tree import Tree

HEADERS = ("imagesource", "gsd", "acquisition dates")
"""Words at the beginning of lines that describe the image instead of an object."""
NOT_ANNOTATIONS = frozenset({"classes.txt", "readme.txt", "train.txt", "val.txt", "test.txt", "trainval.txt"})


class Row(NamedTuple):
    """Line in a text file: the class of an object, its four corners (x, y) in pixels, and True if it is difficult."""

    name: str
    corners: tuple[tuple[float, float], ...]
    difficult: bool


def detect(tree: Tree) -> list[Detection]:
    """Detect text files if most of their lines have the form of DOTA."""
    return detect_texts(tree, NOT_ANNOTATIONS, parse, ("boxes", "instances"), "lines of four corners and a class")


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the images with their quadrilaterals as outlines or, for the kind "boxes", with upright boxes around them."""
    splits = pair_by_folder(tree, TextFiles(tree))
    parsed, problems = read_annotated(tree, by_folder=splits, splits=splits, parse=parse, lists=NOT_ANNOTATIONS)
    images = {
        split: [ShapedImage(image, _make_shapes(rows)) for image, rows in rows_by_image]
        for split, rows_by_image in parsed.items()
    }
    return convert(kind, images, problems)


def _make_shapes(rows: Iterable[Row]) -> list[Shape]:
    """Convert quadrilaterals to shapes. Those that have no area are left out."""
    shapes = (make_polygon_shape(row.name, row.corners, ignored=row.difficult) for row in rows)
    return [shape for shape in shapes if shape is not None]


def parse(path: str) -> Parsed[Row]:
    """Parse a text file in DOTA format and return its objects. Raises UnusableFile or OSError."""
    return parse_lines(path, _parse_line)


def _parse_line(line: str, number: int) -> Row | None:
    """Return the object in line `number` of a file, or None if there is none. Raises Unfit for an unusable line."""
    tokens = line.split()
    if not tokens or line.lower().startswith(HEADERS):
        return None
    if len(tokens) not in (9, 10) or parse_finite(tokens[8]) is not None:  # the class must not be a number
        raise Unfit(f"line {number} is not four corners and a class")
    values = [read_number(token, number) for token in tokens[:8]]
    difficult = len(tokens) == 10 and read_number(tokens[9], number) > 0
    return Row(tokens[8], tuple(zip(values[::2], values[1::2], strict=True)), difficult)


FORMAT = Format(
    "dota",
    "DOTA text files",
    ("boxes", "instances"),
    "A folder images and a folder labelTxt with a text file of the same name for each image.",
    detect,
    read,
)
