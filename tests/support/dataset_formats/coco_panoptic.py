"""Writer of COCO's panoptic JSON and PNGs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "splits", "nested", "png_images")
WITHOUT_SPLITS = ("plain",)
_STUFF_ID = 9
_STUFF = 65536 * 3 + 256 * 2 + 1


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, PNGs of segment ids and JSON files in the layout `variant`. Only "plain" has no splits.

    All pixels without an object form one segment of stuff.
    """
    if variant == "plain":
        _write_split(truth, truth.images, folder / "images", folder / "annotations" / "panoptic.json", "jpg")
        return
    root = folder / "coco" if variant == "nested" else folder
    for split in ("train", "val"):
        path = root / "annotations" / f"panoptic_{split}2017.json"
        ending = "png" if variant == "png_images" else "jpg"
        _write_split(truth, truth.get_images(split), root / f"{split}2017", path, ending)


def compute_segment_id(number: int) -> int:
    """Compute the segment id of object `number`. None of its three bytes is 0."""
    return (number + 1) * (65536 * 5 + 256 * 3 + 1)


def _write_split(truth: Truth, images: tuple[TrueImage, ...], folder: Path, path: Path, ending: str) -> None:
    annotations, entries = [], []
    for number, image in enumerate(images, 1):
        image.save(folder / f"{image.name}.{ending}")
        entries.append(
            {"id": number, "file_name": f"{image.name}.{ending}", "width": image.width, "height": image.height}
        )
        ids = np.full((image.height, image.width), _STUFF, np.int64)
        segments: list[dict[str, Any]] = [{"id": _STUFF, "category_id": _STUFF_ID, "iscrowd": 0}]
        for place, each in enumerate(image.objects):
            left, top, right, bottom = each.box
            ids[top:bottom, left:right] = compute_segment_id(place)
            category = truth.classes.index(each.name) + 1
            segments.append({"id": compute_segment_id(place), "category_id": category, "iscrowd": 0})
        annotations.append({"image_id": number, "file_name": f"{image.name}.png", "segments_info": segments})
        pixels = np.stack([ids % 256, ids // 256 % 256, ids // 65536], -1).astype(np.uint8)
        target = path.with_suffix("") / f"{image.name}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(target)
    categories = [{"id": number, "name": name, "isthing": 1} for number, name in enumerate(truth.classes, 1)]
    categories.append({"id": _STUFF_ID, "name": "ground", "isthing": 0})
    path.write_text(json.dumps({"images": entries, "annotations": annotations, "categories": categories}))
