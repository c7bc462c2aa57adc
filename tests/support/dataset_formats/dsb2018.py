"""Writer of the 2018 Data Science Bowl's layout: a folder per image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.dataset_formats.annotations import rename_boxes
from tests.support.dataset_formats.pixels import save_mask
from tests.support.dataset_formats.truth import CLASSES, TrueImage, Truth

VARIANTS = ("plain", "splits")
WITHOUT_SPLITS = ("plain",)


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write each image with a black and white mask per object. The variant "splits" has a folder per split."""
    for image in truth.images:
        root = folder / (f"stage1_{image.split}" if variant == "splits" else "") / image.name
        image.save(root / f"images/{image.name}.png")
        (root / "masks").mkdir()
        for number, each in enumerate(image.objects):
            left, top, right, bottom = each.box
            values = np.zeros((image.height, image.width), np.uint8)
            values[top:bottom, left:right] = 255
            save_mask(root / f"masks/{image.name}_{number}.png", values)


def expect(image: TrueImage, kind: str) -> Any:
    """Return the annotation of `kind` that Footplate should read for an image."""
    return rename_boxes(image, dict.fromkeys(CLASSES, "object"))
