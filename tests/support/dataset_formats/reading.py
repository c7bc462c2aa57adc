"""Reading of datasets in tests of formats, back into the form of the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.data.formats.boxes import Marked, image_sizes
from engine.data.formats.format import Content, Format
from engine.data.formats.labels_table import LabelSplit
from engine.data.formats.tree import Tree
from engine.data.splits import FileSplit

Boxes = list[tuple[str, tuple[float, ...]]]


def content(format: Format, folder: Path, kind: str) -> Content:
    """Return what a format reads by its only detection."""
    tree = Tree(str(folder))
    (detection,) = format.detect(tree)
    return format.read(tree, detection, kind)


def names_of(found: Content) -> dict[str, dict[str, Any]]:
    """Return the classes, labels or boxes of each image by split and by the stem of its file."""
    return {split: _of_split(images, found.classes) for split, images in found.splits.items()}


def merged(found: Content) -> dict[str, Any]:
    """Return the same for images of all splits."""
    return {stem: value for images in names_of(found).values() for stem, value in images.items()}


def _of_split(images: Any, classes: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(images, FileSplit):
        return {Path(file).stem: classes[label] for file, label in zip(images.files, images.labels, strict=True)}
    if isinstance(images, LabelSplit):
        return {
            Path(file).stem: {name for name, has in zip(classes, row, strict=True) if has}
            for file, row in zip(images.files, images.labels, strict=True)
        }
    return {Path(image.path).stem: _boxes(image, classes) for image in images}


def _boxes(image: Marked, classes: tuple[str, ...]) -> Boxes:
    height, width = image_sizes([image])[0].tolist() if image.fractions else (1, 1)
    sides = (width, height, width, height)
    return [
        (classes[box.label], tuple(round(edge * side, 3) for edge, side in zip(box[:4], sides, strict=True)))
        for box in image.boxes
    ]
