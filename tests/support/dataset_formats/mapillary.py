"""Writer of Mapillary Vistas folders with custom labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.dataset_formats.annotations import count_values, rename_boxes
from tests.support.dataset_formats.pixels import draw_labels, draw_numbered_labels, save_mask
from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "v2.0")
KIND = "masks"
LABELS = {"apple": 0, "bear": 2, "cup": 3}
ROAD, VOID = 1, 4


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the label list, images, and masks of labels and objects. The background is labeled as road.

    `variant` is the version of the dataset: "v2.0", or "plain" for a dataset without a version.
    """
    names = {number: name for name, number in LABELS.items()} | {ROAD: "road", VOID: "unlabeled"}
    labels = [
        {
            "name": f"object--{names[number]}",
            "readable": names[number].title(),
            "instances": number != ROAD,
            "evaluate": number != VOID,
            "color": [number, number, number],
        }
        for number in sorted(names)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    config = "config.json" if variant == "plain" else f"config_{variant}.json"
    (folder / config).write_text(json.dumps({"labels": labels, "version": variant}))
    for image in truth.images:
        split = folder / {"train": "training", "val": "validation"}[image.split]
        masks = split if variant == "plain" else split / variant
        image.save(split / f"images/{image.name}.jpg")
        save_mask(masks / f"labels/{image.name}.png", draw_labels(image, ROAD, LABELS))
        numbers = draw_numbered_labels(image, LABELS, 256, 0)
        numbers[draw_labels(image, ROAD, LABELS) == ROAD] = ROAD * 256
        save_mask(masks / f"instances/{image.name}.png", numbers)


def expect(image: TrueImage, kind: str) -> Any:
    """Return the annotation of `kind` that Footplate should read for an image."""
    names = {name: name.title() for name in LABELS}
    return rename_boxes(image, names) if kind == "instances" else count_values(image.draw_mask())
