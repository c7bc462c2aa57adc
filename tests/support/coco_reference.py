"""Random objects and detections, and their metrics as computed by pycocotools."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
from pycocotools import mask as coding
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

CLASSES = 3
SIDE = 48
Image = dict[str, Any]


def make_images(seed: int, *, count: int = 12, crowded: int = 8) -> list[Image]:
    """Return `count` random images with objects and detections. Most detections are close to an object.

    An image has fewer than `crowded` objects. A tenth of the objects are marked as ignored. The last class has no
    objects.
    """
    generator = np.random.default_rng(seed)
    results = []
    for _ in range(count):
        objects = int(generator.integers(0, crowded))
        true = boxes(generator, objects)
        classes = generator.integers(0, CLASSES - 1, objects)
        near = generator.integers(0, max(1, objects), 3 * crowded if objects else 0)
        found = np.concatenate([true[near] + generator.normal(0, 2, (len(near), 4)), boxes(generator, crowded)])
        found = np.sort(found.reshape(-1, 2, 2), 1).reshape(-1, 4).clip(0, SIDE)
        kinds = np.concatenate([classes[near], generator.integers(0, CLASSES, crowded)])
        results.append(
            {
                "true": true,
                "true_classes": classes,
                "ignored": generator.random(objects) < 0.1,
                "found": found,
                "classes": kinds,
                # Use few different values, so that some scores are equal.
                "scores": generator.integers(1, 40, len(found)) / 40,
            }
        )
    return results


def boxes(generator: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    corners = generator.uniform(0, SIDE - 20, (count, 2))
    return np.concatenate([corners, corners + generator.uniform(4, 20, (count, 2))], 1)


def draw_ellipses(given: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a mask for each box, bool [n, h, w]: the ellipse that touches the four edges of the box.

    Each row of `given` is a box: left, top, right and bottom in pixels.
    """
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    results = np.zeros((len(given), SIDE, SIDE), bool)
    for mask, (left, top, right, bottom) in zip(results, given.tolist(), strict=True):
        half_width, half_height = max(right - left, 1e-9) / 2, max(bottom - top, 1e-9) / 2
        mask[:] = ((x - left - half_width) / half_width) ** 2 + ((y - top - half_height) / half_height) ** 2 <= 1
    return results


def compute_precisions(
    given: list[Image], kind: str, *, size: str = "all", scale: float = 1.0
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Compute the average precision with pycocotools, [classes, 10], at the IoU thresholds 0.5, 0.55, ..., 0.95.

    It is -1 for classes without objects. `kind` is "bbox" or "segm". Only objects of `size` (COCO's "all", "small",
    ...) are counted. Box coordinates are multiplied by `scale` first.
    """
    truth, found = COCO(), []
    annotations = []
    for number, image in enumerate(given, 1):
        for box, mask, of_class, ignored in zip(
            image["true"], draw_ellipses(image["true"]), image["true_classes"], image["ignored"], strict=True
        ):
            left, top, right, bottom = (box * scale).tolist()
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": int(of_class) + 1,
                    "bbox": [left, top, right - left, bottom - top],
                    "area": (right - left) * (bottom - top),
                    "segmentation": coding.encode(np.asfortranarray(mask.astype(np.uint8))),
                    "iscrowd": int(ignored),
                }
            )
        for box, mask, of_class, score in zip(
            image["found"], draw_ellipses(image["found"]), image["classes"], image["scores"], strict=True
        ):
            left, top, right, bottom = (box * scale).tolist()
            entry = {"image_id": number, "category_id": int(of_class) + 1, "score": float(score)}
            if kind == "bbox":
                entry["bbox"] = [left, top, right - left, bottom - top]
            else:
                entry["segmentation"] = coding.encode(np.asfortranarray(mask.astype(np.uint8)))
            found.append(entry)
    with contextlib.redirect_stdout(io.StringIO()):
        truth.dataset = {
            "info": {},
            "images": [{"id": number, "width": SIDE, "height": SIDE} for number in range(1, len(given) + 1)],
            "annotations": annotations,
            "categories": [{"id": number} for number in range(1, CLASSES + 1)],
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(found), kind)
        evaluation.evaluate()
        evaluation.accumulate()
    area = evaluation.params.areaRngLbl.index(size)
    found_precisions: np.ndarray[Any, np.dtype[np.float64]] = evaluation.eval["precision"][:, :, :, area, -1]
    return found_precisions.mean(1).T
