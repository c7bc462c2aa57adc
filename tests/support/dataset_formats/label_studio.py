"""Writer of Label Studio's exports."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.support.dataset_formats.truth import TrueImage, TrueObject, Truth

VARIANTS = ("plain", "boxes", "brushes", "local", "cloud", "splits", "min", "bom", "choices", "labels")
WITHOUT_SPLITS = tuple(variant for variant in VARIANTS if variant != "splits")
KINDS = {"boxes": "boxes", "min": "boxes", "choices": "classes", "labels": "labels"}
"""Most detailed kind of annotations for each variant that doesn't store instances."""


def write(truth: Truth, folder: Path, variant: str = "plain") -> None:
    """Write the images, and a Label Studio export per split in the variant "splits", otherwise a single one.

    The other variants differ in the kind of annotations, the encoding, or the form of the export and its paths.
    """
    for image in truth.images:
        image.save(folder / f"images/{image.name}.png")
    make = _small_task if variant == "min" else _task
    if variant == "splits":
        for split in ("train", "val"):
            _save(folder / f"export_{split}.json", [make(image, variant) for image in truth.get_images(split)])
    else:
        tasks = [make(image, variant) for image in truth.images]
        _save(folder / "project-1-at-2024-01-01.json", tasks, "utf-8-sig" if variant == "bom" else "utf-8")


def _save(path: Path, tasks: list[Any], encoding: str = "utf-8") -> None:
    path.write_text(json.dumps(tasks), encoding)


def _url(image: TrueImage, variant: str) -> str:
    match variant:
        case "local":
            return f"/data/local-files/?d=photos%2Fimages%2F{image.name}.png"
        case "cloud":
            return f"s3://bucket/some/{image.name}.png"
    return f"/data/upload/1/0a1b2c3d-{image.name}.png"


def _task(image: TrueImage, variant: str) -> dict[str, Any]:
    results = [_result(each, image, variant) for each in image.objects]
    if variant in ("choices", "labels"):
        names = image.tags if variant == "labels" else image.tags[:1]
        results = [{"type": "choices", "from_name": "c", "to_name": "i", "value": {"choices": list(names)}}]
    return {
        "id": sum(map(ord, image.name)),
        "annotations": [
            {"id": 1, "was_cancelled": True, "result": [{"value": {}}]},
            {"id": 2, "was_cancelled": False, "result": results},
        ],
        "predictions": [{"result": [_result(TrueObject("wrong", ((0, 0), (9, 0), (9, 9))), image, "boxes")]}],
        "data": {"image": _url(image, variant), "title": "a text"},
        "file_upload": f"0a1b2c3d-{image.name}.png",
    }


def _small_task(image: TrueImage, variant: str) -> dict[str, Any]:
    common = {"original_width": image.width, "original_height": image.height}
    return {
        "image": _url(image, variant),
        "title": "a text",
        "id": sum(map(ord, image.name)),
        "label": [_result(each, image, "boxes")["value"] | common for each in image.objects],
        "annotator": 1,
        "annotation_id": 2,
        "created_at": "2024-01-01T10:00:00Z",
        "updated_at": "2024-01-01T10:00:00Z",
        "lead_time": 3.5,
    }


def _result(each: TrueObject, image: TrueImage, variant: str) -> dict[str, Any]:
    left, top, right, bottom = each.box
    if variant in ("boxes", "min"):
        kind = "rectanglelabels"
        value: dict[str, Any] = {
            "x": 100 * left / image.width,
            "y": 100 * top / image.height,
            "width": 100 * (right - left) / image.width,
            "height": 100 * (bottom - top) / image.height,
            "rotation": 0,
        }
    elif variant == "brushes":
        kind = "brushlabels"
        alpha = np.zeros((image.height, image.width), np.uint8)
        alpha[top:bottom, left:right] = 255
        value = {"format": "rle", "rle": encode_alpha(alpha)}
    else:
        kind = "polygonlabels"
        value = {"points": [[100 * x / image.width, 100 * y / image.height] for x, y in each.polygon], "closed": True}
    return {
        "id": f"{each.name}{left}",
        "type": kind,
        "from_name": "label",
        "to_name": "image",
        "image_rotation": 0,
        "original_width": image.width,
        "original_height": image.height,
        "value": value | {kind: [each.name]},
    }


def encode_alpha(alpha: npt.NDArray[np.uint8]) -> list[int]:
    """Encode the alpha channel of a mask in Label Studio's run-length format.

    Equal values form runs of at most 65,536. Other values are stored one by one.
    """
    values = np.repeat(alpha.reshape(-1), 4)
    bits = [f"{len(values):032b}", f"{7:05b}", *(f"{width - 1:04b}" for width in (3, 4, 8, 16))]
    edges = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for start, end in pairwise(edges):
        for first in range(start, end, 1 << 16):
            length = min(end - first, 1 << 16)
            if length == 4:  # some single values
                bits.append("0" + "00" + f"{length - 1:03b}" + f"{values[first]:08b}" * length)
            else:
                bits.append("1" + "11" + f"{length - 1:016b}" + f"{values[first]:08b}")
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    return [int(text[place : place + 8], 2) for place in range(0, len(text), 8)]
