"""Writer of the VGG Image Annotator's JSON, projects and CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from tests.support.dataset_formats.truth import TrueImage, TrueObject, Truth

VARIANTS = ("plain", "splits", "nested", "project", "version_1", "csv", "checkboxes", "bom")
WITHOUT_SPLITS = ("plain", "project", "version_1", "csv", "checkboxes", "bom")


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images, and the outlines of their objects as polygons in the layout `variant`: JSON, a project, or CSV."""
    by_split: dict[str, list[TrueImage]] = {}
    for image in truth.images:
        place = {"splits": f"{image.split}/", "nested": f"data/{image.split}/"}.get(variant, "")
        image.save(folder / place / f"{image.name}.png")
        by_split.setdefault(place, []).append(image)
    for place, images in by_split.items():
        if variant == "csv":
            _write_csv(folder / place / "via_region_data.csv", images)
            continue
        entries: dict[str, Any] = {f"{image.name}.png-1": _entry(image, variant) for image in images}
        if variant == "project":
            entries = {"_via_settings": {"ui": {}}, "_via_img_metadata": entries, "_via_attributes": {"region": {}}}
        path = folder / place / "via_region_data.json"
        path.write_text(json.dumps(entries), encoding="utf-8-sig" if variant == "bom" else "utf-8")


def _entry(image: TrueImage, variant: str) -> dict[str, Any]:
    regions = [
        {"shape_attributes": make_shape(each), "region_attributes": make_attributes(each, variant)}
        for each in image.objects
    ]
    numbered = {str(number): region for number, region in enumerate(regions)} if variant == "version_1" else regions
    return {"filename": f"{image.name}.png", "size": -1, "regions": numbered, "file_attributes": {}}


def make_shape(each: TrueObject) -> dict[str, Any]:
    """Return the outline of an object as VIA's attributes of a polygon."""
    x, y = zip(*each.polygon, strict=True)
    return {"name": "polygon", "all_points_x": list(x), "all_points_y": list(y)}


def make_attributes(each: TrueObject, variant: str = "plain") -> dict[str, Any]:
    """Return VIA's attributes of an object: "class", a text or check boxes, and "occluded", which isn't a class."""
    return {"class": {each.name: True, "other": False} if variant == "checkboxes" else each.name, "occluded": "no"}


def _write_csv(path: Path, images: list[TrueImage]) -> None:
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(
            ["filename", "file_size", "file_attributes", "region_count", "region_id", "region_shape_attributes", "region_attributes"]
        )  # fmt: skip
        for image in images:
            start = [f"{image.name}.png", 1, "{}", len(image.objects)]
            for number, each in enumerate(image.objects):
                rows.writerow([*start, number, json.dumps(make_shape(each)), json.dumps(make_attributes(each))])
            if not image.objects:
                rows.writerow([*start, 0, "{}", "{}"])
