"""DOTA's text files, one for each image: four corners, a class and a difficulty in each line. Torch-free."""

from __future__ import annotations

from typing import NamedTuple

from engine.data.decoding.image_files import EXTENSIONS
from engine.data.decoding.reading import Unfit, finite, read_number, read_text, refuse_unusable
from engine.data.formats.format import Confidence, Content, Detection, Format
from engine.data.formats.shared.shapes import Shape, ShapedImage, convert, polygon_shape
from engine.data.formats.shared.text_files import (
    Parsed,
    TextFiles,
    annotated_only,
    check_pairs,
    check_spare,
    describe_folders,
    good_share,
    pairs_by_folder,
    read_texts,
    sample,
    text_folders,
)
from engine.data.formats.tree import Tree

HEADERS = ("imagesource", "gsd", "acquisition dates")
"""Words before the colon of the lines that describe the image."""
NOT_ANNOTATIONS = frozenset({"classes.txt", "readme.txt", "train.txt", "val.txt", "test.txt", "trainval.txt"})


class Row(NamedTuple):
    """A class, its corners as x and y in pixels, and whether the object is difficult."""

    name: str
    corners: tuple[tuple[float, float], ...]
    difficult: bool


def detect(tree: Tree) -> list[Detection]:
    """Return how the text files can be read if most of their lines are DOTA's."""
    if not any(tree.has(EXTENSIONS, folder) for folder in tree.walk()):
        return []
    folders = text_folders(tree, NOT_ANNOTATIONS)
    found = sample([tree.path(folder, name) for folder, names in folders.items() for name in names], parse)
    share = good_share(found)
    if share < 0.5:
        return []
    evidence = (describe_folders(folders), "lines of four corners and a class")
    confidence = Confidence.CERTAIN if share >= 0.9 else Confidence.LIKELY
    return [Detection(("boxes", "instances"), confidence, evidence)]


def read(tree: Tree, detection: Detection, kind: str) -> Content:
    """Return the areas within the corners as instances, or the upright boxes around them."""
    splits = pairs_by_folder(tree, TextFiles(tree))
    problems = check_pairs(tree, splits)
    used = {pair.text for pairs in splits.values() for pair in pairs}
    problems += check_spare(tree, text_folders(tree, NOT_ANNOTATIONS), used)
    splits, alone = annotated_only(splits)
    parsed, unreadable = read_texts(splits, parse)
    images = {
        split: [ShapedImage(image, [shape for row in rows if (shape := _shape(row))]) for image, rows in found]
        for split, found in parsed.items()
    }
    return convert(kind, images, [*problems, *alone, *unreadable])


def _shape(row: Row) -> Shape | None:
    return polygon_shape(row.name, row.corners, ignored=row.difficult)


def parse(path: str) -> Parsed[Row]:
    """Return the objects in a file. Raises UnusableFile and OSError."""
    found = Parsed[Row]()
    seen: set[Row] = set()
    text = read_text(path)
    with refuse_unusable(path):
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or line.lower().startswith(HEADERS):
                continue
            try:
                row = _parse_line(words, number)
            except Unfit as error:
                found.faults.append(str(error))
                continue
            if row in seen:
                found.repeated += 1
            else:
                seen.add(row)
                found.rows.append(row)
    return found


def _parse_line(words: list[str], number: int) -> Row:
    if len(words) not in (9, 10) or finite(words[8]) is not None:
        raise Unfit(f"line {number} is not four corners and a class")
    values = [read_number(word, number) for word in words[:8]]
    difficult = len(words) == 10 and read_number(words[9], number) > 0
    return Row(words[8], tuple(zip(values[::2], values[1::2], strict=True)), difficult)


FORMAT = Format(
    "dota",
    "DOTA text files",
    ("boxes", "instances"),
    "A folder images and a folder labelTxt with a text file of the same name for each image.",
    detect,
    read,
)
