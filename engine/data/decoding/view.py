"""Conversion of coordinates between an image and a square that contains it, such as a model's input. Torch-free."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.images import Framing
from engine.data.decoding.idx import Bytes

Boxes = npt.NDArray[np.float64]


class View(NamedTuple):
    """Scale and offset of an image inside a square.

    The point (x, y) in the image, in pixels from its upper left corner, is at (x * scale_x + left, y * scale_y + top)
    in the square.
    """

    scale_y: float
    scale_x: float
    top: float
    left: float

    @classmethod
    def of(cls, height: int, width: int, size: int, resized: int, framing: Framing) -> View:
        """Return the view of an image, given its height and width, in a model's input of `size` x `size` pixels.

        `framing` first converts the image to a square with side `resized` (see `engine.data.decoding.images.frame`).
        The model receives the center of this square.
        """
        if framing == "crop":
            scale = resized / min(height, width)
            tall, wide = round(height * scale), round(width * scale)
            top, left = -((tall - resized) // 2), -((wide - resized) // 2)
        else:
            top, left, tall, wide = find_letterbox(height, width, resized)
        margin = (resized - size) // 2
        return cls(scale_y=tall / height, scale_x=wide / width, top=top - margin, left=left - margin)

    def convert_boxes(self, boxes: Boxes, height: int, width: int) -> Boxes:
        """Convert boxes [n, 4] (x1, y1, x2, y2) from the square to the image, and clip them to it.

        `height` and `width` are those of the image.
        """
        scales = np.array([self.scale_x, self.scale_y] * 2)
        moved = (boxes - np.array([self.left, self.top] * 2)) / scales
        return np.clip(moved, 0, [width, height] * 2)

    def map_rows(self, first: int, last: int) -> npt.NDArray[np.floating]:
        """Return the positions in the square of the image's rows `first` to `last` - 1, float64 [rows].

        Positions are counted in pixels, and 0 is the square's first row.
        """
        return (np.arange(first, last, dtype=np.float64) + 0.5) * self.scale_y + self.top - 0.5

    def map_columns(self, width: int) -> npt.NDArray[np.floating]:
        """Return the positions in the square of all columns of the image, given its width, float64 [width].

        Positions are counted in pixels, and 0 is the square's first column.
        """
        return (np.arange(width, dtype=np.float64) + 0.5) * self.scale_x + self.left - 0.5


def find_letterbox(height: int, width: int, size: int) -> tuple[int, int, int, int]:
    """Return the top, left, height and width of an image that is letterboxed in a square with side `size`.

    The longer side of the image, whose original `height` and `width` are given, fills the square.
    """
    scale = size / max(height, width)
    tall, wide = max(1, round(height * scale)), max(1, round(width * scale))
    return (size - tall) // 2, (size - wide) // 2, tall, wide


def letterbox_plane(plane: Bytes, size: int, outside: int) -> Bytes:
    """Letterbox a plane of classes, uint8 [h, w], to [size, size], and fill the rest with the class `outside`.

    Pixels are taken from the nearest position, as with Pillow's NEAREST.
    """
    height, width = plane.shape
    top, left, tall, wide = find_letterbox(height, width, size)
    rows = (np.arange(tall) * 2 + 1) * height // (2 * tall)
    columns = (np.arange(wide) * 2 + 1) * width // (2 * wide)
    out = np.full((size, size), outside, np.uint8)
    out[top : top + tall, left : left + wide] = plane[rows[:, None], columns]
    return out


def extend_edges(image: Bytes, sides: tuple[int, int]) -> Bytes:
    """Repeat the outermost pixels of a letterboxed image [c, size, size] up to the edges of the square.

    `sides` are the height and width of the image before it was letterboxed.
    """
    size = image.shape[-1]
    top, left, tall, wide = find_letterbox(*sides, size)
    inside = image[:, top : top + tall, left : left + wide]
    return np.pad(inside, ((0, 0), (top, size - top - tall), (left, size - left - wide)), mode="edge")
