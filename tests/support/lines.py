"""Generator of small images with a straight line, and masks of the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.masks import write_pairs


def make_line(side: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return an image of a bright line on noise, its mask, and the angle of the line.

    The image is uint8 [side, side, 3]. The mask is uint8 [side, side] with the values 0 and 255. The angle is in
    degrees, counterclockwise from horizontal.
    """
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 120, (side, side, 3), dtype=np.uint8)
    degrees = random.uniform(0, 180)
    angle, off = np.radians(degrees), random.uniform(-side / 5, side / 5)
    rows, columns = np.mgrid[:side, :side] - side / 2 + 0.5
    inside = np.abs(columns * np.sin(angle) + rows * np.cos(angle) - off) < 2.5
    pixels[inside] = 200
    return pixels, np.where(inside, 255, 0).astype(np.uint8), degrees


def make_lined(folder: Path, counts: dict[str, int], side: int = 32) -> Path:
    """Write square images of a line to images/SPLIT/N.png and their masks to masks/SPLIT/N.png. Return `folder`.

    `counts` maps a split to its number of images of `side` px.
    """
    return write_pairs(folder, counts, lambda seed: make_line(side, seed)[:2])
