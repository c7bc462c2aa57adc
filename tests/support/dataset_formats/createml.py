"""Writer of Create ML's JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.dataset_formats.truth import Truth

VARIANTS = ("plain", "splits", "nested", "image_file_names", "bom")
KIND = "boxes"
WITHOUT_SPLITS = ("plain",)


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, and the boxes of their objects in Create ML's JSON, in the layout `variant`.

    The layouts differ in the folders, in the names of the JSON keys, and in the encoding.
    """
    entries: dict[str, list[dict[str, object]]] = {}
    name_key, list_key = ("imagefilename", "annotation") if variant == "image_file_names" else ("image", "annotations")
    for image in truth.images:
        place = {"plain": "", "nested": f"export/{image.split}/"}.get(variant, f"{image.split}/")
        image.save(folder / place / f"{image.name}.jpg")
        objects = [
            {
                "label": each.name,
                "coordinates": {
                    "x": (each.box[0] + each.box[2]) / 2,
                    "y": (each.box[1] + each.box[3]) / 2,
                    "width": each.box[2] - each.box[0],
                    "height": each.box[3] - each.box[1],
                },
            }
            for each in image.objects
        ]
        entries.setdefault(place, []).append({name_key: f"{image.name}.jpg", list_key: objects})
    for place, entry in entries.items():
        path = folder / place / "_annotations.createml.json"
        path.write_text(json.dumps(entry), encoding="utf-8-sig" if variant == "bom" else "utf-8")
