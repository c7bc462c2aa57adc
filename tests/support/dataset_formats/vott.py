"""Writer of VoTT's JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.dataset_formats.truth import TrueImage, Truth

VARIANTS = ("plain", "assets", "polygons", "splits")
WITHOUT_SPLITS = ("plain", "assets", "polygons")
KINDS = {"plain": "boxes", "assets": "boxes", "polygons": "instances", "splits": "boxes"}


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the images, and their annotations as VoTT exports.

    There is one export per split in the variant "splits", one per image in "assets", and otherwise a single one.
    """
    for split in ("train", "val") if variant == "splits" else ("",):
        images = truth.get_images(split) if split else truth.images
        place = folder / split / ("" if variant == "assets" else "vott-json-export")
        place.mkdir(parents=True, exist_ok=True)
        entries = {f"{number:032x}": _entry(image, variant) for number, image in enumerate(images)}
        for image in images:
            image.save(place / f"{image.name}.png")
        if variant == "assets":
            for key, entry in entries.items():
                (place / f"{key}-asset.json").write_text(json.dumps(entry))
        else:
            content = {"name": "fruit", "tags": [{"name": name} for name in truth.classes], "assets": entries}
            (place / "fruit-export.json").write_text(json.dumps(content))


def _entry(image: TrueImage, variant: str) -> dict[str, Any]:
    name = f"{image.name}.png"
    regions = []
    for each in image.objects:
        left, top, right, bottom = each.box
        regions.append(
            {
                "type": "POLYGON" if variant == "polygons" else "RECTANGLE",
                "tags": [each.name],
                "boundingBox": {"left": left, "top": top, "width": right - left, "height": bottom - top},
                "points": [{"x": x, "y": y} for x, y in each.polygon],
            }
        )
    size = {"width": image.width, "height": image.height}
    return {"asset": {"name": name, "path": f"file:C:/data/{name}", "size": size, "state": 2}, "regions": regions}
