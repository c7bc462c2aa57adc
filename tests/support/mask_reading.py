"""Masks and objects that formats read, as arrays and areas to compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from engine.data.decoding.masks import class_plane, read_values
from engine.data.formats.format import Content, Detection, Format
from engine.data.formats.instances import InstanceSplit
from engine.data.formats.tree import Tree
from engine.data.splits import MaskSplit
from tests.support.dataset_formats.truth import TrueImage

Things = dict[str, list[tuple[str, int, int, int, int, int]]]


def detect(format: Format, folder: Path) -> list[Detection]:
    return list(format.detect(Tree(str(folder))))


def read(format: Format, folder: Path, kind: str) -> Content:
    """Read a folder by the first detection that has the kind."""
    tree = Tree(str(folder))
    detection = next(each for each in format.detect(tree) if kind in each.kinds)
    return format.read(tree, detection, kind)


def pixels(content: Content, split: str) -> dict[str, npt.NDArray[np.generic]]:
    """Return the values of the masks of a split as they are in the files, by the stems of the images."""
    masks = content.splits[split]
    assert isinstance(masks, MaskSplit)
    return {
        _stem(image): read_values(Path(mask).read_bytes()).values
        for image, mask in zip(masks.files, masks.masks, strict=True)
    }


def planes(content: Content, split: str) -> dict[str, npt.NDArray[np.uint8]]:
    """Return the class of each pixel of a split, by the stems of the images."""
    masks = content.splits[split]
    assert isinstance(masks, MaskSplit)
    assert content.code is not None
    return {
        _stem(image): class_plane(read_values(Path(mask).read_bytes()), content.code)
        for image, mask in zip(masks.files, masks.masks, strict=True)
    }


def things(content: Content, split: str) -> Things:
    """Return the class, the edges and the area of the objects in each image of a split, by its stem."""
    objects = content.splits[split]
    assert isinstance(objects, InstanceSplit)
    held: Things = {}
    for path, source in zip(objects.files, objects.sources, strict=True):
        with Image.open(path) as image:
            width, height = image.size
        found = [each for each in source.instances(height, width) if not each.ignored]
        assert sorted(each.label for each in found) == sorted(source.labels())
        held[_stem(path)] = sorted(
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


def true_things(images: tuple[TrueImage, ...], names: dict[str, str] | str | None = None) -> Things:
    """Return the same of the truth; `names` are other names of its classes, or the only one."""

    def named(name: str) -> str:
        return name if names is None else names if isinstance(names, str) else names[name]

    return {
        image.name: sorted(
            (named(each.name), *each.box, (each.box[2] - each.box[0]) * (each.box[3] - each.box[1]))
            for each in image.objects
        )
        for image in images
    }


def _stem(path: str) -> str:
    return Path(path).stem
