"""Conversion of annotations that format readers return to plain values for comparison."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.data.decoding.mask_values import class_plane, read_values
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.shared.boxes import BoxedImage, BoxFaults, find_image_sizes, gather
from engine.data.formats.shared.instances import InstanceSplit
from engine.data.formats.tree import Tree
from engine.data.splits import FileSplit, LabelSplit, MaskSplit
from tests.support.dataset_formats.truth import TrueImage, Truth

Edges = tuple[float, float, float, float]
ByImage = dict[str, list[tuple[str, Edges]]]
Boxes = dict[str, list[tuple[str, float, float, float, float]]]
Things = dict[str, list[tuple[str, int, int, int, int, int]]]


def detect(form: Format, folder: Path) -> list[Detection]:
    """Return all possible readings of a folder in a dataset format, which may be none."""
    return list(form.detect(Tree(str(folder))))


def detect_once(form: Format, folder: Path) -> Detection:
    """Return the reading of a folder in a dataset format, and check that no other is possible."""
    (detection,) = detect(form, folder)
    return detection


def read(form: Format, folder: Path, kind: str = "") -> Content:
    """Read a folder with the first possible reading that has annotations `kind`, or "" for the most detailed kind."""
    tree = Tree(str(folder))
    detection = next(each for each in form.detect(tree) if kind in ("", *each.kinds))
    return form.read(tree, detection, kind or detection.kinds[0])


def read_once(form: Format, folder: Path, kind: str = "boxes") -> Content:
    """Read a folder with a format, which must have exactly one possible reading of it, with annotations `kind`."""
    tree = Tree(str(folder))
    (detection,) = form.detect(tree)
    assert kind in detection.kinds
    return form.read(tree, detection, kind)


def list_boxes_by_split(content: Content) -> dict[str, ByImage]:
    """Return all boxes, by split and by the stem of the image's name.

    The boxes of an image are a list of tuples (class, (left, top, right, bottom)).
    """
    found: dict[str, ByImage] = {}
    for split, images in content.splits.items():
        boxes = gather(images, len(content.classes), BoxFaults())
        assert len({*boxes.files}) == len(boxes.files)
        found[split] = {
            Path(path).stem: [
                (content.classes[label], tuple(round(edge, 3) for edge in box))
                for label, box in zip(
                    boxes.labels[boxes.rows_of(row)].tolist(), boxes.boxes[boxes.rows_of(row)].tolist(), strict=True
                )
            ]
            for row, path in enumerate(boxes.files)
        }
    return found


def list_instances_by_split(content: Content) -> dict[str, ByImage]:
    """Return the boxes of all instances, by split and by the stem of the image's name.

    The boxes of an image are a list of tuples (class, (left, top, right, bottom)).
    """
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


def list_boxes(content: Content, split: str = "") -> Boxes:
    """Return (class, left, top, right, bottom) of each box in a split, by the stem of the image's name."""
    images: list[BoxedImage] = content.splits[split]
    return {Path(image.path).stem: [(content.classes[box.label], *box[:4]) for box in image.boxes] for image in images}


def list_ignored_flags(content: Content) -> dict[str, list[bool]]:
    """Return the `ignored` flags of the boxes in a dataset without splits, by the stem of the image's name."""
    return {Path(image.path).stem: [box.ignored for box in image.boxes] for image in content.splits[""]}


def list_instances(content: Content, sizes: dict[str, tuple[int, int]], split: str = "") -> Boxes:
    """Return (class, left, top, right, bottom) of each instance in a split, by the stem of the image's name.

    `sizes` maps these stems to the heights and widths of the images.
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


def list_true_boxes(images: tuple[TrueImage, ...]) -> Boxes:
    """Return (class, left, top, right, bottom) of each ground-truth box, by the image's name."""
    return {image.name: [(each.name, *map(float, each.box)) for each in image.objects] for image in images}


def list_true_sizes(truth: Truth) -> dict[str, tuple[int, int]]:
    """Return the height and width of each ground-truth image, by its name."""
    return {image.name: (image.height, image.width) for image in truth.images}


def merge_splits(content: Content, reader: Any) -> dict[str, Any]:
    """Call `reader` with `content` and each split's name, and merge the dicts that it returns."""
    return {name: value for split in content.splits for name, value in reader(content, split).items()}


def list_annotations_by_split(found: Content) -> dict[str, dict[str, Any]]:
    """Return the annotation of each image, by split and by the stem of the image's name.

    Depending on the content, it is the class, the labels or the boxes of the image.
    """
    return {split: _list_split_annotations(images, found.classes) for split, images in found.splits.items()}


def list_annotations(found: Content) -> dict[str, Any]:
    """Return the annotation of each image in all splits, by the stem of the image's name.

    Depending on the content, it is the class, the labels or the boxes of the image.
    """
    return {stem: value for images in list_annotations_by_split(found).values() for stem, value in images.items()}


def _list_split_annotations(images: Any, classes: tuple[str, ...]) -> dict[str, Any]:
    if isinstance(images, FileSplit):
        return {Path(file).stem: classes[label] for file, label in zip(images.files, images.labels, strict=True)}
    if isinstance(images, LabelSplit):
        return {
            Path(file).stem: {name for name, has in zip(classes, row, strict=True) if has}
            for file, row in zip(images.files, images.labels, strict=True)
        }
    return {Path(image.path).stem: _named_boxes(image, classes) for image in images}


def _named_boxes(image: BoxedImage, classes: tuple[str, ...]) -> list[tuple[str, tuple[float, ...]]]:
    height, width = find_image_sizes([image])[0].tolist() if image.fractions else (1, 1)
    sides = (width, height, width, height)
    return [
        (classes[box.label], tuple(round(edge * side, 3) for edge, side in zip(box[:4], sides, strict=True)))
        for box in image.boxes
    ]


def read_masks(content: Content, split: str) -> dict[str, npt.NDArray[np.generic]]:
    """Return the masks of a split with the values that are stored in the files, by the stem of the image's name."""
    masks = content.splits[split]
    assert isinstance(masks, MaskSplit)
    return {
        _stem_of(image): read_values(Path(mask).read_bytes()).values
        for image, mask in zip(masks.files, masks.masks, strict=True)
    }


def read_class_masks(content: Content, split: str) -> dict[str, npt.NDArray[np.uint8]]:
    """Return the masks of a split with stored values converted to classes, by the stem of the image's name."""
    masks = content.splits[split]
    assert isinstance(masks, MaskSplit)
    assert content.code is not None
    return {
        _stem_of(image): class_plane(read_values(Path(mask).read_bytes()), content.code)
        for image, mask in zip(masks.files, masks.masks, strict=True)
    }


def list_things(content: Content, split: str) -> Things:
    """Return a tuple for each object in a split that isn't ignored, by the stem of the image's name.

    The tuple is (class, left, top, right, bottom, area in pixels).
    """
    objects = content.splits[split]
    assert isinstance(objects, InstanceSplit)
    held: Things = {}
    for path, source in zip(objects.files, objects.sources, strict=True):
        with Image.open(path) as image:
            width, height = image.size
        found = [each for each in source.instances(height, width) if not each.ignored]
        assert sorted(each.label for each in found) == sorted(source.labels())
        held[_stem_of(path)] = sorted(
            (
                content.classes[each.label],
                each.window.left,
                each.window.top,
                each.window.left + each.window.pixels.shape[1],
                each.window.top + each.window.pixels.shape[0],
                each.area,
            )
            for each in found
        )
    return held


def list_true_things(images: tuple[TrueImage, ...], names: dict[str, str] | str | None = None) -> Things:
    """Return (class, left, top, right, bottom, area in pixels) of each ground-truth object, by the image's name.

    `names` maps ground-truth classes to the expected classes. A string replaces all classes.
    """

    def named(name: str) -> str:
        return name if names is None else names if isinstance(names, str) else names[name]

    return {
        image.name: sorted(
            (named(each.name), *each.box, (each.box[2] - each.box[0]) * (each.box[3] - each.box[1]))
            for each in image.objects
        )
        for image in images
    }


def _stem_of(path: str) -> str:
    return Path(path).stem


def join_problems(content: Content) -> str:
    """Return the texts of all problems of a dataset's content, separated by spaces."""
    return " ".join(map(str, content.problems))
