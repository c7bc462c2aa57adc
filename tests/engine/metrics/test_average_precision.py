"""Average precision against pycocotools, on the same objects and detections."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coding
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from engine.metrics.average_precision import average_precisions, box_overlaps, judge, mask_overlaps

CLASSES = 3
SIDE = 48
Image = dict[str, Any]


def images(seed: int, *, count: int = 12, crowded: int = 8) -> list[Image]:
    """Objects, a tenth of them ignored, and detections of which most lie near an object; the last class has no objects."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        objects = int(generator.integers(0, crowded))
        true = boxes(generator, objects)
        classes = generator.integers(0, CLASSES - 1, objects)
        near = generator.integers(0, max(1, objects), 3 * crowded if objects else 0)
        found = np.concatenate([true[near] + generator.normal(0, 2, (len(near), 4)), boxes(generator, crowded)])
        found = np.sort(found.reshape(-1, 2, 2), 1).reshape(-1, 4).clip(0, SIDE)
        kinds = np.concatenate([classes[near], generator.integers(0, CLASSES, crowded)])
        made.append(
            {
                "true": true,
                "true_classes": classes,
                "ignored": generator.random(objects) < 0.1,
                "found": found,
                "classes": kinds,
                # Of few values, so that some are equal.
                "scores": generator.integers(1, 40, len(found)) / 40,
            }
        )
    return made


def boxes(generator: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    corners = generator.uniform(0, SIDE - 20, (count, 2))
    return np.concatenate([corners, corners + generator.uniform(4, 20, (count, 2))], 1)


def masks(given: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The ellipses in boxes."""
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    made = np.zeros((len(given), SIDE, SIDE), bool)
    for mask, (left, top, right, bottom) in zip(made, given.tolist(), strict=True):
        across, down = max(right - left, 1e-9) / 2, max(bottom - top, 1e-9) / 2
        mask[:] = ((x - left - across) / across) ** 2 + ((y - top - down) / down) ** 2 <= 1
    return made


def ours(given: list[Image], kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    rows, counts = [], np.zeros(CLASSES)
    for image in given:
        true, found, ignored = image["true"], image["found"], image["ignored"]
        if kind == "bbox":
            overlaps = box_overlaps(found, true, ignored)
        else:
            overlaps = mask_overlaps(masks(found), masks(true), ignored)
        rows.append(judge(image["classes"], image["scores"], image["true_classes"], ignored, [overlaps]))
        counts += np.bincount(image["true_classes"][~ignored], minlength=CLASSES)
    return average_precisions(np.concatenate(rows), counts)


def theirs(given: list[Image], kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """pycocotools' precision, [classes, 10], -1 where a class has no objects."""
    truth, found = COCO(), []
    annotations = []
    for number, image in enumerate(given, 1):
        for box, mask, of_class, ignored in zip(
            image["true"], masks(image["true"]), image["true_classes"], image["ignored"], strict=True
        ):
            left, top, right, bottom = box.tolist()
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
            image["found"], masks(image["found"]), image["classes"], image["scores"], strict=True
        ):
            left, top, right, bottom = box.tolist()
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
    return evaluation.eval["precision"][:, :, :, 0, -1].mean(1).T


@pytest.mark.parametrize("kind", ["bbox", "segm"])
@pytest.mark.parametrize("seed", range(3))
def test_that_it_is_that_of_pycocotools(kind: str, seed: int) -> None:
    given = images(seed)
    found, wanted = ours(given, kind), theirs(given, kind)
    assert np.isnan(found[-1]).all()
    assert (wanted[-1] == -1).all()
    np.testing.assert_allclose(found[:-1], wanted[:-1], atol=1e-9)
    assert 0.05 < found[:-1].mean() < 0.95


def test_that_of_very_many_detections_the_best_hundred_of_a_class_count_as_there() -> None:
    given = images(5, count=2, crowded=60)
    assert max(np.bincount(image["classes"]).max() for image in given) > 100
    np.testing.assert_allclose(ours(given, "bbox")[:-1], theirs(given, "bbox")[:-1], atol=1e-9)


def test_that_what_finds_all_has_one_and_what_finds_nothing_has_none() -> None:
    image = next(each for each in images(0) if len(each["true"]) and not each["ignored"].any())
    all_found = image | {
        "found": image["true"], "classes": image["true_classes"], "scores": np.ones(len(image["true"]))
    }  # fmt: skip
    nothing = image | {"found": np.empty((0, 4)), "classes": np.empty(0, np.int64), "scores": np.empty(0)}
    assert np.nanmin(ours([all_found], "bbox")) == pytest.approx(1)
    assert np.nanmax(ours([nothing], "bbox")) == 0
