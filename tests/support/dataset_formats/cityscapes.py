"""Writer of Cityscapes and KITTI folders. The ground-truth classes become cars, persons and riders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.dataset_formats.annotations import count_values, rename_boxes
from tests.support.dataset_formats.pixels import draw_labels, draw_numbered_labels, save_mask
from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "label_ids", "coarse", "nested", "kitti", "kitti_splits")
KIND = "masks"
WITHOUT_SPLITS = ("kitti",)
NAMES = {"apple": "car", "bear": "person", "cup": "rider"}
LABELS = {"apple": 26, "bear": 24, "cup": 25}
TRAIN_IDS = {"apple": 13, "bear": 11, "cup": 12}
ROAD, ROAD_TRAIN_ID = 7, 0


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, and masks of labels and objects. The background is labeled as road.

    `variant` selects the layout: that of KITTI ("kitti", "kitti_splits"), otherwise that of Cityscapes.
    """
    if variant in ("kitti", "kitti_splits"):
        for image in truth.images:
            split = folder / (image.split if variant == "kitti_splits" else "training")
            image.save(split / f"image_2/{image.name}.png")
            save_mask(split / f"semantic/{image.name}.png", draw_labels(image, ROAD, LABELS))
            numbers = draw_numbered_labels(image, LABELS, 256, 1)
            save_mask(split / f"instance/{image.name}.png", np.where(numbers, numbers, ROAD * 256))
        return
    root = folder / "cityscapes" if variant == "nested" else folder
    kind = "gtCoarse" if variant == "coarse" else "gtFine"
    for image in truth.images:
        city = f"{image.split}/aachen"
        image.save(root / f"leftImg8bit/{city}/{image.name}_leftImg8bit.png")
        stem = root / f"{kind}/{city}/{image.name}_{kind}"
        save_mask(stem.with_name(stem.name + "_labelIds.png"), draw_labels(image, ROAD, LABELS))
        if variant != "label_ids":
            trained = draw_labels(image, ROAD_TRAIN_ID, TRAIN_IDS)
            save_mask(stem.with_name(stem.name + "_labelTrainIds.png"), trained)
        save_mask(stem.with_name(stem.name + "_color.png"), np.zeros((image.height, image.width, 3), np.uint8))
        numbers = draw_numbered_labels(image, LABELS, 1000, 0)
        save_mask(stem.with_name(stem.name + "_instanceIds.png"), np.where(numbers, numbers, ROAD).astype(np.uint16))


def expect(image: TrueImage, kind: str) -> Any:
    """Return the annotation of `kind` that Footplate should read for an image."""
    return rename_boxes(image, NAMES) if kind == "instances" else count_values(image.draw_mask())
