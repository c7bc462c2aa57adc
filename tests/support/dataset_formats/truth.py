"""Ground truth that the writers of dataset formats share: six images with three classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

CLASSES = ("apple", "bear", "cup")
"""Class names, in the order of their numbers.

They are in alphabetical order, because formats without class numbers sort the names.
"""


@dataclass(frozen=True)
class TrueObject:
    """Ground-truth object: its class, its polygon of x and y in whole pixels, and its bounding box."""

    name: str
    polygon: tuple[tuple[int, int], ...]

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Edges of the bounding box: left, top, right, bottom."""
        x, y = zip(*self.polygon, strict=True)
        return min(x), min(y), max(x), max(y)


@dataclass(frozen=True)
class TrueImage:
    """Ground-truth image. No two images have the same size or the same number of objects per class."""

    name: str
    split: str
    width: int
    height: int
    objects: tuple[TrueObject, ...]
    tags: tuple[str, ...]
    """All classes of the image, for tagging. Formats with one class per image use the first."""

    def draw_pixels(self) -> npt.NDArray[np.uint8]:
        """Return the image's pixels, uint8 [h, w, 3]: random noise that differs between images."""
        seed = sum(map(ord, self.name))
        return np.random.default_rng(seed).integers(0, 256, (self.height, self.width, 3), np.uint8)

    def draw_mask(self) -> npt.NDArray[np.uint8]:
        """Return the class of each pixel, uint8 [h, w]: 0 for background, 1 + the class number for objects."""
        values = np.zeros((self.height, self.width), np.uint8)
        for each in self.objects:
            left, top, right, bottom = each.box
            values[top:bottom, left:right] = 1 + CLASSES.index(each.name)
        return values

    def save(self, path: Path) -> Path:
        """Write the image to `path`, whose suffix determines the file format, and return `path`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(self.draw_pixels()).save(path)
        return path


def _rectangle(name: str, left: int, top: int, right: int, bottom: int) -> TrueObject:
    return TrueObject(name, ((left, top), (right, top), (right, bottom), (left, bottom)))


@dataclass(frozen=True)
class Truth:
    """Ground truth of a dataset: its class names, and its images, of which two are for validation by default."""

    classes: tuple[str, ...] = CLASSES
    images: tuple[TrueImage, ...] = field(
        default=(
            TrueImage("img_1", "train", 96, 64, (_rectangle("apple", 8, 8, 40, 32),), ("apple",)),
            TrueImage("img_2", "train", 80, 72, (_rectangle("bear", 4, 12, 36, 60),), ("bear", "cup")),
            TrueImage(
                "img_3", "train", 64, 96,
                (_rectangle("cup", 10, 10, 30, 40), _rectangle("apple", 32, 50, 60, 90)), ("cup", "apple"),
            ),
            TrueImage("img_4", "train", 100, 50, (), ("apple",)),
            TrueImage(
                "img_5", "val", 72, 80,
                (_rectangle("bear", 1, 2, 21, 22), _rectangle("bear", 30, 32, 70, 78)), ("bear",),
            ),
            TrueImage(
                "img_6", "val", 88, 66,
                (_rectangle("apple", 0, 0, 16, 16), _rectangle("cup", 20, 20, 40, 60), _rectangle("bear", 44, 4, 84, 64)),
                ("apple", "bear", "cup"),
            ),
        )
    )  # fmt: skip

    def get_images(self, split: str) -> tuple[TrueImage, ...]:
        """Return the images of a split ("train" or "val")."""
        return tuple(image for image in self.images if image.split == split)


TRUTH = Truth()
