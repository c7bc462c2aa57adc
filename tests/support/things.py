"""Generator of images with bright objects, and of a table with the object counts."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

CELL = 12


def make_things(folder: Path, count: int) -> Path:
    """Write `count` images of 48 px with up to seven objects, and counts.csv with their numbers of objects.

    The objects don't touch, because each is in a separate cell of a grid.
    """
    random = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    rows = []
    top, left = np.mgrid[:CELL, :CELL] - CELL // 2
    thing = top**2 + left**2 < 16
    for number in range(count):
        pixels = random.integers(0, 80, (4 * CELL, 4 * CELL, 3), dtype=np.uint8)
        things = int(random.integers(0, 7 + 1))
        for cell in random.permutation(16)[:things]:
            row, column = divmod(int(cell), 4)
            block = pixels[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
            block[thing] = random.integers(150, 256, 3)
        Image.fromarray(pixels).save(folder / f"images/{number:03}.png")
        rows.append((f"{number:03}.png", things))
    with open(folder / "counts.csv", "w", newline="") as table:
        csv.writer(table).writerows(rows)
    return folder
