"""Reading of folders by one format, and the result in plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.data.formats.boxes import Marked
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.instances import InstanceSplit
from engine.data.formats.tree import Tree
from tests.support.dataset_formats.truth import TrueImage, Truth

Boxes = dict[str, list[tuple[str, float, float, float, float]]]


def detect(format: Format, folder: Path) -> list[Detection]:
    """Return what a format detects."""
    return list(format.detect(Tree(str(folder))))


def read(format: Format, folder: Path, kind: str = "", number: int = 0) -> Content:
    """Return what a format reads, of its most detailed kind unless one is given."""
    tree = Tree(str(folder))
    detection = format.detect(tree)[number]
    return format.read(tree, detection, kind or detection.kinds[0])


def boxes(content: Content, split: str = "") -> Boxes:
    """Return class and edges of boxes in pixels by the image's name."""
    images: list[Marked] = content.splits[split]
    return {Path(image.path).stem: [(content.classes[box.label], *box[:4]) for box in image.boxes] for image in images}


def ignored(content: Content, split: str = "") -> dict[str, list[bool]]:
    """Return which boxes are ignored."""
    return {Path(image.path).stem: [box.ignored for box in image.boxes] for image in content.splits[split]}


def instances(content: Content, sizes: dict[str, tuple[int, int]], split: str = "") -> Boxes:
    """Return class and edges of instances, and check that all pixels between are theirs if they are rectangles.

    Args:
        content: What was read.
        sizes: Heights and widths of the images by name.
        split: Name of the split.
    """
    held: Boxes = {}
    found: InstanceSplit = content.splits[split]
    for path, source in zip(found.files, found.sources, strict=True):
        name = Path(path).stem
        held[name] = []
        for each in source.instances(*sizes[name]):
            height, width = each.window.pixels.shape
            left, top = each.window.left, each.window.top
            held[name].append((content.classes[each.label], left, top, left + width, top + height))
    return held


def true_boxes(images: tuple[TrueImage, ...]) -> Boxes:
    """Return the boxes of the truth."""
    return {image.name: [(each.name, *map(float, each.box)) for each in image.objects] for image in images}


def true_sizes(truth: Truth) -> dict[str, tuple[int, int]]:
    """Return heights and widths of the truth's images."""
    return {image.name: (image.height, image.width) for image in truth.images}


def merged(content: Content, reader: Any) -> dict[str, Any]:
    """Return what `reader` returns of all splits together."""
    return {name: value for split in content.splits for name, value in reader(content, split).items()}
