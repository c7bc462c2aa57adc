"""Average precision of boxes and masks, as defined by COCO.

The definitions are those of pycocotools (`COCOeval`, cocodataset/cocoapi), and tests compare the results. There are ten
IoU thresholds and 101 recalls at which the precision is measured. At most 100 detections of each class in an image
count, and objects of all sizes. pycocotools evaluates all images in one process. Here, results are rows that can be
merged over ranks and drawn for bootstrap resamples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""Minimum IoUs for a match between a detection and an object."""
RECALLS = np.linspace(0.0, 1.0, 101)
MAX_DETECTIONS = 100
"""Maximum number of detections that count per class and image. Those with the highest scores count."""
_CHUNK_PIXELS = 1 << 16
"""Maximum number of mask pixels that are compared at once.

It limits memory, since floats take four times as much as bools.
"""
RIGHT, WRONG, LEFT_OUT = 1, 0, -1
"""Results for a detection at a threshold. It matches an object, matches no object, or doesn't count."""


def box_overlaps(found: Floats, true: Floats, ignored: Bools) -> Floats:
    """Return the IoU of each of the boxes `found` [d, 4] with each of the boxes `true` [g, 4], as [d, g].

    Boxes are x1, y1, x2, y2. An ignored box may cover many objects, so its overlap is the fraction of the detected box
    that is inside it.
    """
    corner = np.minimum(found[:, None, 2:], true[None, :, 2:]) - np.maximum(found[:, None, :2], true[None, :, :2])
    both = corner.clip(min=0).prod(2)
    return _ratios(both, _areas(found), _areas(true), ignored)


def mask_overlaps(found: Bools, true: Bools, ignored: Bools) -> Floats:
    """Return the IoU of each of the masks `found` [d, h, w] with each of the masks `true` [g, h, w], as [d, g].

    For ignored masks, see `box_overlaps`.
    """
    pixels = found.shape[1] * found.shape[2]
    flat, flat_true = found.reshape(len(found), pixels), true.reshape(len(true), pixels)
    both = np.zeros((len(found), len(true)))
    for start in range(0, pixels, _CHUNK_PIXELS):
        chunk = np.s_[:, start : start + _CHUNK_PIXELS]
        both += flat[chunk].astype(np.float32) @ flat_true[chunk].astype(np.float32).T
    return _ratios(both, flat.sum(1, dtype=np.float64), flat_true.sum(1, dtype=np.float64), ignored)


def _areas(boxes: Floats) -> Floats:
    areas: Floats = (boxes[:, 2:] - boxes[:, :2]).clip(min=0).prod(1)
    return areas


def _ratios(both: Floats, found: Floats, true: Floats, ignored: Bools) -> Floats:
    union = np.where(ignored[None], found[:, None], found[:, None] + true[None] - both)
    return np.divide(both, union, out=np.zeros_like(both), where=union > 0)


def match(overlaps: Floats, ignored: Bools) -> Floats:
    """Return RIGHT, WRONG or LEFT_OUT for each detection of one class in one image at each threshold, [d, 10].

    Each detection is assigned to the unmatched object that it overlaps most. A detection is left out if it overlaps
    only an ignored object.

    Args:
        overlaps: Overlaps [d, g], with the detections in descending order of scores.
        ignored: Ignored objects, bool [g]. Any number of detections may be assigned to each.
    """
    return outcomes_of(assign(overlaps, ignored, ignored), ignored)


def outcomes_of(taken: Ints, ignored: Bools) -> Floats:
    """Return RIGHT, WRONG or LEFT_OUT for each detection at each threshold, [d, 10].

    Args:
        taken: Result of `assign`, [d, 10].
        ignored: Objects whose detections are left out, bool [g].
    """
    if not len(ignored):
        return np.full(taken.shape, float(WRONG))
    return np.where(taken < 0, WRONG, np.where(ignored[taken], LEFT_OUT, RIGHT)).astype(np.float64)


def assign(overlaps: Floats, ignored: Bools, shared: Bools) -> Ints:
    """Return the object that each detection of one class in one image is assigned to at each threshold, [d, 10].

    It is the unmatched object that the detection overlaps most, given by its index, or -1 for none.

    Args:
        overlaps: Overlaps [d, g], with the detections in descending order of scores.
        ignored: Objects that are assigned only if no other object matches, bool [g].
        shared: Objects to which any number of detections may be assigned, bool [g].
    """
    chosen = np.full((len(overlaps), len(THRESHOLDS)), -1, np.int64)
    if not overlaps.shape[1]:
        return chosen
    order = np.argsort(ignored, kind="stable")
    overlaps, ignored, shared = overlaps[:, order], ignored[order], shared[order]
    free = np.ones((len(THRESHOLDS), overlaps.shape[1]), bool)
    all_thresholds = np.arange(len(THRESHOLDS))
    minimum = np.minimum(THRESHOLDS, 1 - 1e-10)[:, None]
    for number, row in enumerate(overlaps):
        taken = np.where((row >= minimum) & (free | shared), row, -1.0)
        true = np.where(ignored, -1.0, taken)
        taken = np.where((true >= 0).any(1, keepdims=True), true, taken)
        best = taken.shape[1] - 1 - taken[:, ::-1].argmax(1)  # the last of equal values, as in pycocotools
        is_matched = taken[all_thresholds, best] >= 0
        chosen[number, is_matched] = order[best[is_matched]]
        free[all_thresholds[is_matched], best[is_matched]] = False
    return chosen


def match_detections(
    classes: Ints, scores: Floats, true_classes: Ints, ignored: Bools, overlaps: Sequence[Floats]
) -> Floats:
    """Return a row for each detection in an image.

    It consists of the class, the score, and the results of `match` at the ten thresholds for each item of `overlaps`.
    An item [d, g] compares the boxes, or the masks, of the detections with those of all objects in the image.
    """
    rows = [np.empty((0, 2 + len(overlaps) * len(THRESHOLDS)))]
    for number in np.unique(classes):
        found = np.flatnonzero(classes == number)
        found = found[np.argsort(-scores[found], kind="stable")][:MAX_DETECTIONS]
        true = np.flatnonzero(true_classes == number)
        outcomes = [match(each[np.ix_(found, true)], ignored[true]) for each in overlaps]
        rows.append(np.column_stack([classes[found], scores[found], *outcomes]))
    return np.concatenate(rows)


def average_precisions(rows: Floats, counts: Floats) -> Floats:
    """Return the average precision of each class at each of t thresholds, [classes, t]. It is NaN for an absent class.

    Args:
        rows: Rows from `match_detections` for one kind of overlap and all images, [k, 2 + t].
        counts: Number of objects of each class that are not ignored, [classes].
    """
    found = np.full((len(counts), rows.shape[1] - 2), np.nan)
    rows = rows[np.lexsort((-rows[:, 1], rows[:, 0]))]
    bounds = np.searchsorted(rows[:, 0], np.arange(len(counts) + 1))
    for number in np.flatnonzero(counts):
        outcomes = rows[bounds[number] : bounds[number + 1], 2:]
        right, wrong = (outcomes == RIGHT).cumsum(0), (outcomes == WRONG).cumsum(0)
        recall = right / counts[number]
        precision = right / (right + wrong + np.spacing(1))
        precision = np.maximum.accumulate(precision[::-1])[::-1]
        precision = np.concatenate([precision, np.zeros((1, outcomes.shape[1]))])  # 0 for unreached recalls
        for index in range(outcomes.shape[1]):
            found[number, index] = precision[np.searchsorted(recall[:, index], RECALLS), index].mean()
    return found
