"""Generator of small images with masks: bright discs on noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image


def make_disc(side: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image of a red or green disc, uint8 [side, side, 3], and its mask, uint8 [side, side].

    The mask is 0 for the background, 1 or 2 for the disc.
    """
    random = np.random.default_rng(seed)
    pixels = random.integers(0, 120, (side, side, 3), dtype=np.uint8)
    rows, columns = np.mgrid[:side, :side]
    (top, left), radius = random.integers(side // 4, 3 * side // 4, 2), random.integers(side // 6, side // 3)
    inside = (rows - top) ** 2 + (columns - left) ** 2 < radius**2
    kind = 1 + seed % 2
    pixels[inside, kind - 1] = 220
    return pixels, np.where(inside, kind, 0).astype(np.uint8)


def make_masked(folder: Path, counts: dict[str, int], side: int = 32, *, ignored: bool = True) -> Path:
    """Write square images of discs to images/SPLIT/N.png and their masks to masks/SPLIT/N.png. Return `folder`.

    `counts` maps a split to its number of images of `side` px. If `ignored`, the first row of each mask is unlabeled
    (255).
    """

    def draw(seed: int) -> tuple[np.ndarray, np.ndarray]:
        pixels, mask = make_disc(side, seed)
        if ignored:
            mask[0] = 255
        return pixels, mask

    return write_pairs(folder, counts, draw)


def write_pairs(folder: Path, counts: dict[str, int], draw: Callable[[int], tuple[np.ndarray, np.ndarray]]) -> Path:
    """Write images to images/SPLIT/N.png and their masks to masks/SPLIT/N.png, and return `folder`.

    `counts` maps a split to its number of images. `draw` returns the image and the mask for a seed, which differs for
    each image.
    """
    seed = 0
    for split, count in counts.items():
        for number in range(count):
            for kind, content in zip(("images", "masks"), draw(seed := seed + 1), strict=True):
                place = folder / kind / split / f"{number:03}.png"
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(content).save(place)
    return folder
