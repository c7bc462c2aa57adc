"""Writer of Oxford-IIIT Pet folders. Objects of all classes are written as the foreground of trimaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.dataset_formats.annotations import count_values
from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "splits")
KIND = "masks"
WITHOUT_SPLITS = ("plain",)


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and trimaps. The variant "splits" also writes the lists of the training and test images.

    The first row of each trimap is unclassified.
    """
    for image in truth.images:
        image.save(folder / f"images/{image.name}.jpg")
        save_mask(folder / f"annotations/trimaps/{image.name}.png", make_trimap(image))
    if variant == "splits":
        for name, split in (("trainval", "train"), ("test", "val")):
            lines = [f"{image.name} 1 1 1" for image in truth.get_images(split)]
            (folder / f"annotations/{name}.txt").write_text("\n".join(lines) + "\n")


def make_trimap(image: TrueImage) -> npt.NDArray[np.uint8]:
    """Make the trimap of an image, uint8 [h, w]: 1 for objects, 2 for background, 3 for unclassified (the first row)."""
    values = np.where(image.draw_mask() > 0, 1, 2).astype(np.uint8)
    values[0] = 3
    return values


def expect(image: TrueImage, kind: str) -> Any:
    """Return the annotation of `kind` that Footplate should read for an image. Unclassified pixels are counted, too."""
    return count_values(make_trimap(image))
