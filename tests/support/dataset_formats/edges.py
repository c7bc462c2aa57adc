"""Writer of images with edge maps, which hold the outlines of the objects.

Some variants have the layouts of BSDS500 and BIPED.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import TrueImage, Truth
from tests.support.edges import save_matlab

_PLACES = {
    "plain": ("images/{name}.png", "edges/{name}.png"),
    "splits": ("images/{split}/{name}.png", "edge_maps/{split}/{name}.png"),
    "split_first": ("{split}/image/{name}.png", "{split}/edge/{name}.png"),
    "bsds": ("BSDS500/data/images/{split}/{name}.jpg", "BSDS500/data/groundTruth/{split}/{name}.mat"),
    "biped": ("edges/imgs/{split}/rgbr/real/{name}.jpg", "edges/edge_maps/{split}/rgbr/real/{name}.png"),
    "longer_names": ("images/{split}/{name}.jpg", "edges/{split}/{name}_edge.png"),
}
VARIANTS = tuple(_PLACES)
KIND = "edges"
LIKELY = tuple(variant for variant in VARIANTS if variant != "bsds")
WITHOUT_SPLITS = ("plain",)


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and the outlines of their objects, white on black or as BSDS500's MATLAB files.

    `variant` selects the folders and the type of the files.
    """
    image_place, edge_place = _PLACES[variant]
    for image in truth.images:
        image.save(folder / image_place.format(name=image.name, split=image.split))
        path = folder / edge_place.format(name=image.name, split=image.split)
        if path.suffix == ".mat":
            save_matlab(path, [find_outline(image)])
        else:
            save_mask(path, find_outline(image).astype(np.uint8) * 255)


def find_outline(image: TrueImage) -> npt.NDArray[np.bool_]:
    """Return a mask of the objects' border pixels, bool [h, w]."""
    layer = np.zeros((image.height, image.width), bool)
    for each in image.objects:
        left, top, right, bottom = each.box
        layer[top:bottom, left:right] = True
        layer[top + 1 : bottom - 1, left + 1 : right - 1] = False
    return layer


def expect(image: TrueImage, kind: str) -> Any:
    """Return the number of edge pixels in an image, as a list of one element. The list is empty if there are none."""
    return [int(find_outline(image).sum())] if image.objects else []
