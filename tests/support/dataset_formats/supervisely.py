"""Writer of Supervisely's projects."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.dataset_formats.truth import CLASSES, TrueImage, TrueObject, Truth

VARIANTS = ("plain", "splits", "split_tags", "project", "holes", "bitmaps", "boxes", "old_names", "tags", "labels")
WITHOUT_SPLITS = tuple(variant for variant in VARIANTS if variant not in ("splits", "split_tags"))
HOLES = ("holes",)
KINDS = {"boxes": "boxes", "tags": "classes", "labels": "labels"}
"""Most detailed kind of annotations for each variant that doesn't store instances."""


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the ground truth as a project in the layout `variant`. The layout "splits" has a dataset per split."""
    root = folder / "my project" if variant == "project" else folder
    for image in truth.images:
        dataset = root / (image.split if variant == "splits" else "ds0")
        image.save(dataset / f"img/{image.name}.png")
        ending = ".json" if variant == "old_names" else ".png.json"
        _save(dataset / f"ann/{image.name}{ending}", _content(image, variant))
    classes = [{"title": name, "shape": "any", "color": "#FF0000", "id": 5} for name in CLASSES]
    _save(root / "meta.json", {"classes": classes, "tags": [{"name": name, "value_type": "none"} for name in CLASSES]})


def _save(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def _content(image: TrueImage, variant: str) -> dict[str, Any]:
    names = {"tags": image.tags[:1], "labels": image.tags, "split_tags": (image.split,)}.get(variant, ())
    objects = [] if variant in ("tags", "labels") else [_object(each, variant) for each in image.objects]
    return {
        "description": "",
        "tags": [{"name": name, "value": None} for name in names],
        "size": {"height": image.height, "width": image.width},
        "objects": objects,
    }


def _object(each: TrueObject, variant: str) -> dict[str, Any]:
    left, top, right, bottom = each.box
    entry: dict[str, Any] = {"classTitle": each.name, "tags": [], "description": ""}
    if variant == "boxes":
        points = {"exterior": [[left, top], [right, bottom]], "interior": []}
        return entry | {"geometryType": "rectangle", "points": points}
    if variant == "bitmaps":
        return entry | {
            "geometryType": "bitmap",
            "bitmap": {"origin": [left, top], "data": encode_bitmap(bottom - top, right - left)},
            "points": {"exterior": [], "interior": []},
        }
    hole = [[left + 2, top + 2], [left + 6, top + 2], [left + 6, top + 6], [left + 2, top + 6]]
    points = {"exterior": [list(point) for point in each.polygon], "interior": [hole] if variant == "holes" else []}
    return entry | {"geometryType": "polygon", "points": points}


def encode_bitmap(height: int, width: int) -> str:
    """Encode a filled rectangle as Supervisely encodes masks: a PNG with a transparent color, zlib, base64."""
    image = Image.fromarray(np.ones((height, width), np.uint8), "P")
    image.putpalette([0, 0, 0, 255, 255, 255])
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=0, bits=1)
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode()
