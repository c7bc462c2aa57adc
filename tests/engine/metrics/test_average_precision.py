"""Average precision compared with pycocotools on the same objects and detections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.metrics.average_precision import (
    compute_average_precisions,
    compute_box_overlaps,
    compute_mask_overlaps,
    match_detections,
)
from tests.support.coco_reference import CLASSES, Image, compute_precisions, draw_ellipses, make_images


def compute_with_footplate(given: list[Image], kind: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Match boxes and masks together, as for instance segmentation, and return the results of one `kind`."""
    rows, counts = [], np.zeros(CLASSES)
    for image in given:
        true, found, ignored = image["true"], image["found"], image["ignored"]
        overlaps = [
            compute_box_overlaps(found, true, ignored),
            compute_mask_overlaps(draw_ellipses(found), draw_ellipses(true), ignored),
        ]
        rows.append(match_detections(image["classes"], image["scores"], image["true_classes"], ignored, overlaps))
        counts += np.bincount(image["true_classes"][~ignored], minlength=CLASSES)
    matches = np.concatenate(rows)
    boxes, masks = np.split(matches[:, 2:], 2, axis=1)
    return compute_average_precisions(np.hstack([matches[:, :2], boxes if kind == "bbox" else masks]), counts)


@pytest.mark.parametrize("kind", ["bbox", "segm"])
@pytest.mark.parametrize("seed", range(3))
def test_average_precision_matches_pycocotools(kind: str, seed: int) -> None:
    given = make_images(seed)
    found, expected = compute_with_footplate(given, kind), compute_precisions(given, kind)
    assert np.isnan(found[-1]).all()
    assert (expected[-1] == -1).all()
    np.testing.assert_allclose(found[:-1], expected[:-1], atol=1e-9)
    assert 0.05 < found[:-1].mean() < 0.95


def test_average_precision_resolves_ties_like_pycocotools() -> None:
    """Check a detection that overlaps two objects equally, and decides which of them remains for the next detection."""
    true = np.array([[0, 0, 10, 10], [2, 0, 12, 10]], float)
    found = np.array([[1, 0, 11, 10], [0, 0, 10, 10]], float)
    zeros = np.zeros(2, np.int64)
    image = {
        "true": true, "true_classes": zeros, "ignored": zeros.astype(bool), "found": found, "classes": zeros,
        "scores": np.array([0.9, 0.8]),
    }  # fmt: skip
    np.testing.assert_allclose(
        compute_with_footplate([image], "bbox")[0], compute_precisions([image], "bbox")[0], atol=1e-9
    )


def test_average_precision_uses_the_best_hundred() -> None:
    given = make_images(5, count=2, crowded=60)
    assert max(np.bincount(image["classes"]).max() for image in given) > 100
    np.testing.assert_allclose(
        compute_with_footplate(given, "bbox")[:-1], compute_precisions(given, "bbox")[:-1], atol=1e-9
    )


def test_mask_overlaps_count_each_pixel_of_large_masks() -> None:
    draw = np.random.default_rng(0).random
    found, true = draw((3, 300, 500)) < 0.3, draw((2, 300, 500)) < 0.6
    expected = [[(one & other).sum() / (one | other).sum() for other in true] for one in found]
    np.testing.assert_allclose(compute_mask_overlaps(found, true, np.zeros(2, bool)), expected, rtol=1e-12)


def test_average_precision_of_perfect_and_empty() -> None:
    image = next(each for each in make_images(0) if len(each["true"]) and not each["ignored"].any())
    all_found = image | {
        "found": image["true"], "classes": image["true_classes"], "scores": np.ones(len(image["true"]))
    }  # fmt: skip
    nothing = image | {"found": np.empty((0, 4)), "classes": np.empty(0, np.int64), "scores": np.empty(0)}
    assert np.nanmin(compute_with_footplate([all_found], "bbox")) == pytest.approx(1)
    assert np.nanmax(compute_with_footplate([nothing], "bbox")) == 0
