"""Position of an image that fits into a square. Torch-free."""

from __future__ import annotations

import numpy as np

from engine.data.decoding.idx import Bytes


def boxed(height: int, width: int, size: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of an image in a square of `size`; its long side fills the square."""
    scale = size / max(height, width)
    tall, wide = max(1, round(height * scale)), max(1, round(width * scale))
    return (size - tall) // 2, (size - wide) // 2, tall, wide


def box_plane(plane: Bytes, size: int, outside: int) -> Bytes:
    """Letterbox a plane of classes, uint8 [h, w], like `letterbox`, with `outside` around it.

    Each pixel gets the class nearest to its center, as by Pillow's NEAREST.
    """
    height, width = plane.shape
    top, left, tall, wide = boxed(height, width, size)
    rows = (np.arange(tall) * 2 + 1) * height // (2 * tall)
    columns = (np.arange(wide) * 2 + 1) * width // (2 * wide)
    out = np.full((size, size), outside, np.uint8)
    out[top : top + tall, left : left + wide] = plane[rows[:, None], columns]
    return out


def extend_edges(image: Bytes, sides: tuple[int, int]) -> Bytes:
    """Return an image [c, size, size] whose outermost pixels continue to the edges of the square.

    `sides` are the height and width of the image.
    """
    size = image.shape[-1]
    top, left, tall, wide = boxed(*sides, size)
    inside = image[:, top : top + tall, left : left + wide]
    return np.pad(inside, ((0, 0), (top, size - top - tall), (left, size - left - wide)), mode="edge")
