"""Position of an image in a model's square, and the way back. Torch-free."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.images import Framing
from engine.data.decoding.letterbox import boxed

Boxes = npt.NDArray[np.float64]


class View(NamedTuple):
    """Scale and offset of an image in the square.

    The point (x, y) of the image, in pixels from its upper left corner, is at (x * scale_x + left, y * scale_y + top)
    in the square.
    """

    scale_y: float
    scale_x: float
    top: float
    left: float

    @classmethod
    def of(cls, height: int, width: int, size: int, resized: int, framing: Framing) -> View:
        """Return the view of an image in the middle `size` pixels of a square.

        `framing` makes the square of `resized` pixels (`engine.data.decoding.images.frame`).
        """
        if framing == "crop":
            scale = resized / min(height, width)
            tall, wide = max(resized, round(height * scale)), max(resized, round(width * scale))
            top, left = -((tall - resized) // 2), -((wide - resized) // 2)
        else:
            top, left, tall, wide = boxed(height, width, resized)
        margin = (resized - size) // 2
        return cls(tall / height, wide / width, top - margin, left - margin)

    def behind(self, top: int, left: int) -> View:
        """Return the view of an image in the middle `size` pixels of a square.

        `framing` makes the square of `resized` pixels (`engine.data.decoding.images.frame`).
        """
        return self._replace(top=self.top - top * self.scale_y, left=self.left - left * self.scale_x)

    def boxes(self, boxes: Boxes, height: int, width: int) -> Boxes:
        """Return boxes [n, 4] (x1, y1, x2, y2 in the square) in pixels of the image of that size, cut at its edges."""
        scales = np.array([self.scale_x, self.scale_y] * 2)
        moved = (boxes - np.array([self.left, self.top] * 2)) / scales
        return np.clip(moved, 0, [width, height] * 2)

    def rows(self, first: int, last: int) -> npt.NDArray[np.floating]:
        """Return the centers of the image's rows from `first` to `last` in coordinates of the square's rows."""
        return (np.arange(first, last, dtype=np.float64) + 0.5) * self.scale_y + self.top - 0.5

    def columns(self, first: int, last: int) -> npt.NDArray[np.floating]:
        """Return the centers of the image's columns from `first` to `last` in coordinates of the square's columns."""
        return (np.arange(first, last, dtype=np.float64) + 0.5) * self.scale_x + self.left - 0.5
