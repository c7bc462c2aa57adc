"""Writer of COCO's JSON. Variants imitate Roboflow, LVIS and faulty exporters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools import mask as coding

from tests.support.dataset_formats.truth import TrueImage, TrueObject, Truth

VARIANTS = (
    "plain", "splits", "nested", "roboflow", "lvis", "packed_runs", "plain_runs", "bom", "utf16", "float_ids",
    "string_ids", "numbers_as_text", "nan", "ids_differ", "one_file_per_image", "categories_first",
)  # fmt: skip
WITHOUT_SPLITS = ("plain", "one_file_per_image")
WARNINGS = {"lvis": "only some of the classes"}
_FIRST_ID = 7


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write images and COCO's JSON files in the layout `variant`, which differs from "plain" in one respect."""
    if variant in ("plain", "one_file_per_image"):
        for image in truth.images:
            image.save(folder / "images" / f"{image.name}.png")
        groups = [truth.images] if variant == "plain" else [(image,) for image in truth.images]
        for group in groups:
            name = "annotations" if variant == "plain" else group[0].name
            _write_text(folder / "annotations" / f"{name}.json", make_content(truth, group, variant), variant)
        return
    for split in ("train", "val"):
        images = truth.get_images(split)
        place, pattern, path = _get_layout(variant, split)
        for image in images:
            image.save(folder / place / f"{image.name}.png")
        entry = make_content(truth, images, variant, pattern=pattern, first_id=_FIRST_ID if split == "train" else 40)
        _write_text(folder / path, entry, variant)


def _get_layout(variant: str, split: str) -> tuple[str, str, str]:
    """Return the folder of the images, the pattern of their names in the JSON file, and the path of the JSON file.

    The pattern has "{}" in place of an image's ground-truth name.
    """
    match variant:
        case "nested":
            return f"data/images/{split}", f"images/{split}/{{}}.png", f"data/annotations/{split}.json"
        case "roboflow":
            name = {"val": "valid"}.get(split, split)
            return name, "{}.png", f"{name}/_annotations.coco.json"
        case "lvis":
            return f"{split}2017", f"http://images.cocodataset.org/{split}2017/{{}}.png", f"lvis_v1_{split}.json"
    return f"{split}2017", "{}.png", f"annotations/instances_{split}2017.json"


def make_content(
    truth: Truth, images: tuple[TrueImage, ...], variant: str = "plain", *, pattern: str = "{}.png", first_id: int = 7
) -> dict[str, Any]:
    """Return the content of a JSON file with the annotations of `images` as a dict, in the layout `variant`.

    `pattern` is the path of an image in the file, with "{}" in place of its ground-truth name. `first_id` is the id of
    the first image.
    """
    classes = list(truth.classes)
    if variant == "ids_differ" and first_id != _FIRST_ID:
        classes.reverse()
    categories: list[dict[str, Any]] = [
        {"id": _id(3 * number, variant), "name": name} for number, name in enumerate(classes, 1)
    ]
    if variant == "roboflow":
        categories = [{"id": 0, "name": "things", "supercategory": "none"}] + [
            each | {"supercategory": "things"} for each in categories
        ]
    entries, annotations = [], []
    for number, image in enumerate(images, first_id):
        entry: dict[str, Any] = {"id": _id(number, variant), "width": image.width, "height": image.height}
        if variant == "lvis":
            entry |= {"coco_url": pattern.format(image.name), "neg_category_ids": [], "not_exhaustive_category_ids": []}
        else:
            entry["file_name"] = pattern.format(image.name)
        entries.append(entry)
        for each in image.objects:
            annotations.append(_annotation(each, image, variant) | {"id": len(annotations) + 1, "image_id": number})
            annotations[-1]["category_id"] = _id(3 * (classes.index(each.name) + 1), variant)
            if variant in ("float_ids", "string_ids"):
                # Only one side of each reference is written in the unusual way.
                annotations[-1]["image_id"] = number if variant == "string_ids" else float(number)
    if variant == "categories_first":
        return {"categories": categories, "annotations": annotations, "images": entries}
    return {"info": {"year": 2017}, "images": entries, "annotations": annotations, "categories": categories}


def _annotation(each: TrueObject, image: TrueImage, variant: str) -> dict[str, Any]:
    left, top, right, bottom = each.box
    ring = [value for point in each.polygon for value in point]
    entry: dict[str, Any] = {"bbox": [left, top, right - left, bottom - top], "iscrowd": 0, "segmentation": [ring]}
    entry["area"] = float("nan") if variant == "nan" else (right - left) * (bottom - top)
    if variant == "numbers_as_text":
        entry["bbox"] = [str(value) for value in entry["bbox"]]
    if variant in ("packed_runs", "plain_runs"):
        inside = np.zeros((image.height, image.width), np.uint8)
        inside[top:bottom, left:right] = 1
        packed = coding.encode(np.asfortranarray(inside))
        flat = inside.T.reshape(-1)
        edges = [0, *(np.flatnonzero(np.diff(flat)) + 1).tolist(), len(flat)]
        counts = ([0] if flat[0] else []) + np.diff(edges).tolist()
        entry["segmentation"] = {
            "size": [image.height, image.width],
            "counts": packed["counts"].decode() if variant == "packed_runs" else counts,
        }
    return entry


def _id(number: int, variant: str) -> float | str:
    return {"float_ids": float(number), "string_ids": str(number)}.get(variant, number)


def _write_text(path: Path, entry: dict[str, Any], variant: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    encoding = {"bom": "utf-8-sig", "utf16": "utf-16"}.get(variant, "utf-8")
    path.write_text(json.dumps(entry, indent=1 if variant == "nan" else None), encoding=encoding)
