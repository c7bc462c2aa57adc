"""Writer of LoveDA folders. The ground-truth classes are written as buildings, roads and water."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.dataset_formats.annotations import count_values
from tests.support.dataset_formats.pixels import draw_labels, save_mask
from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain",)
KIND = "masks"
LABELS = {"apple": 2, "bear": 3, "cup": 4}


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and masks of urban and rural areas. The first row of each mask is unlabeled.

    The format has a single layout, so `variant` is unused.
    """
    for number, image in enumerate(truth.images):
        area = folder / image.split.title() / ("Urban" if number % 2 else "Rural")
        image.save(area / f"images_png/{image.name}.png")
        save_mask(area / f"masks_png/{image.name}.png", make_mask(image))


def make_mask(image: TrueImage) -> npt.NDArray[np.uint8]:
    """Make the mask of an image, uint8 [h, w]: 0 for no data (the first row), 1 for background, `LABELS` for objects."""
    found = draw_labels(image, 1, LABELS)
    found[0] = 0
    return found


def expect(image: TrueImage, kind: str) -> Any:
    """Return the annotation of `kind` that Footplate should read for an image. Unlabeled pixels are counted, too."""
    return count_values(make_mask(image))
