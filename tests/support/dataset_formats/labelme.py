"""Writer of labelme folders."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.dataset_formats.truth import TrueImage, TrueObject, Truth

VARIANTS = (
    "plain", "splits", "nested", "apart", "embedded", "groups", "masks", "rotated", "boxes", "renamed", "utf16",
    "flags", "many_flags",
)  # fmt: skip
WITHOUT_SPLITS = tuple(variant for variant in VARIANTS if variant not in ("splits", "nested"))
KINDS = {"boxes": "boxes", "flags": "classes", "many_flags": "labels"}
"""Most detailed kind of annotations for each variant that doesn't store instances."""


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write each image with a JSON file of its objects or flags, in the layout `variant`."""
    for image in truth.images:
        image_at, json_at = _get_paths(image, variant)
        image.save(folder / image_at)
        path = folder / json_at
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_content(image, variant), indent=1), "utf-16" if variant == "utf16" else "utf-8")


def _get_paths(image: TrueImage, variant: str) -> tuple[str, str]:
    """Return the paths of an image and its JSON file in the layout of a variant."""
    match variant:
        case "splits":
            return f"{image.split}/{image.name}.png", f"{image.split}/{image.name}.json"
        case "nested":
            below = f"{image.split}/day {len(image.objects)}/{image.name}"
            return f"images/{below}.png", f"json/{below}.json"
        case "apart":
            return f"images/{image.name}.png", f"labels/{image.name}.json"
        case "renamed":
            return f"{image.name}.png", f"label of {image.name}.json"
    return f"{image.name}.png", f"{image.name}.json"


def _content(image: TrueImage, variant: str) -> dict[str, Any]:
    shapes = [shape for number, each in enumerate(image.objects) for shape in _shapes(each, number, variant)]
    names = {"flags": image.tags[:1], "many_flags": image.tags}.get(variant, ())
    stored = None
    if variant == "embedded":
        buffer = io.BytesIO()
        Image.fromarray(image.draw_pixels()).save(buffer, "PNG")
        stored = base64.b64encode(buffer.getvalue()).decode()
    return {
        "version": "5.4.1",
        "flags": {name: name in names for name in ("apple", "bear", "cup")} if "flags" in variant else {},
        "shapes": [] if "flags" in variant else shapes,
        "imagePath": f"..\\images\\{image.name}.png" if variant == "apart" else f"{image.name}.png",
        "imageData": stored,
        "imageHeight": image.height,
        "imageWidth": image.width,
    }


def _shapes(each: TrueObject, number: int, variant: str) -> list[dict[str, Any]]:
    left, top, right, bottom = each.box
    shape: dict[str, Any] = {
        "label": each.name,
        "points": [[float(x), float(y)] for x, y in each.polygon],
        "group_id": None,
        "description": "",
        "shape_type": "polygon",
        "flags": {},
    }
    if variant == "boxes":
        return [shape | {"shape_type": "rectangle", "points": [[right, bottom], [left, top]]}]
    if variant == "rotated":
        return [shape | {"shape_type": "rotation", "direction": 0.0, "difficult": False}]
    if variant == "masks":
        buffer = io.BytesIO()
        Image.fromarray(np.ones((bottom - top, right - left), bool)).save(buffer, "PNG")
        text = base64.b64encode(buffer.getvalue()).decode()
        return [shape | {"shape_type": "mask", "points": [[left, top], [right - 1, bottom - 1]], "mask": text}]
    if variant == "groups":
        middle = (left + right) // 2
        halves = [[[a, top], [b, top], [b, bottom], [a, bottom]] for a, b in ((left, middle), (middle, right))]
        return [shape | {"points": points, "group_id": number} for points in halves]
    return [shape]
