"""Contents that formats read, in a form that tests compare."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from engine.data.formats.boxes import BoxFaults, gather
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.instances import InstanceSplit
from engine.data.formats.tree import Tree

Edges = tuple[float, float, float, float]
ByImage = dict[str, list[tuple[str, Edges]]]


def detected(form: Format, folder: Path) -> Detection:
    """Return the only detection of a folder."""
    (detection,) = form.detect(Tree(str(folder)))
    return detection


def content_of(form: Format, folder: Path, kind: str = "boxes") -> Content:
    """Return what the only detection of a folder reads."""
    tree = Tree(str(folder))
    (detection,) = form.detect(tree)
    assert kind in detection.kinds
    return form.read(tree, detection, kind)


def boxes_in(content: Content) -> dict[str, ByImage]:
    """Return class and edges of the boxes of each image, by split and the image's name without ending."""
    found: dict[str, ByImage] = {}
    for split, images in content.splits.items():
        boxes = gather(images, len(content.classes), BoxFaults())
        found[split] = {
            Path(path).stem: [
                (content.classes[label], tuple(round(edge, 3) for edge in box))
                for label, box in zip(
                    boxes.labels[boxes.of(row)].tolist(), boxes.boxes[boxes.of(row)].tolist(), strict=True
                )
            ]
            for row, path in enumerate(boxes.files)
        }
    return found


def instances_in(content: Content) -> dict[str, ByImage]:
    """Return class and edges of the instances of each image, by split and the image's name without ending."""
    found: dict[str, ByImage] = {}
    for split, images in content.splits.items():
        assert isinstance(images, InstanceSplit)
        found[split] = {}
        for path, source in zip(images.files, images.sources, strict=True):
            with Image.open(path) as image:
                width, height = image.size
            found[split][Path(path).stem] = [
                (content.classes[each.label], _edges(each.window)) for each in source.instances(height, width)
            ]
    return found


def _edges(window: object) -> Edges:
    top, left, pixels = window  # type: ignore[misc]
    return left, top, left + pixels.shape[1], top + pixels.shape[0]


def warnings_of(content: Content) -> str:
    """Return all problems of a content as one text."""
    return " ".join(map(str, content.problems))
