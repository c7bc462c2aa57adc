"""Generator of small images with edge maps: bright discs on noise, and their outlines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

from tests.support.masks import make_disc


def find_border(mask: np.ndarray) -> np.ndarray:
    """Return the border pixels of `mask`, bool [h, w]."""
    inside = mask > 0
    padded = np.pad(inside, 1, mode="edge")
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    found: np.ndarray = inside & ~inner
    return found


def save_matlab(path: Path, layers: list[np.ndarray]) -> None:
    """Save a file in the format of BSDS500, with the `Boundaries` of each annotator in `layers`."""
    cells = np.empty((1, len(layers)), object)
    for number, layer in enumerate(layers):
        cells[0, number] = {"Segmentation": np.zeros(layer.shape, np.uint16), "Boundaries": layer.astype(np.uint8)}
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {"groundTruth": cells}, do_compression=True)


def make_edged(folder: Path, counts: dict[str, int], side: int = 32, *, matlab: bool = False) -> Path:
    """Write square images of discs to images/SPLIT/N.png and their outlines to edges/SPLIT/N.png. Return `folder`.

    `counts` maps a split to its number of images of `side` px. If `matlab`, write groundTruth/SPLIT/N.mat in place of
    the edge maps, with the edges of two annotators. The second annotator has marked edges only in the upper half.
    """
    seed = 0
    for split, count in counts.items():
        for number in range(count):
            pixels, mask = make_disc(side, seed := seed + 1)
            image = folder / "images" / split / f"{number:03}.png"
            image.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(image)
            edges = find_border(mask)
            if matlab:
                half = edges.copy()
                half[side // 2 :] = False
                save_matlab(folder / "groundTruth" / split / f"{number:03}.mat", [edges, half])
                continue
            place = folder / "edges" / split / f"{number:03}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(edges.astype(np.uint8) * 255).save(place)
    return folder
