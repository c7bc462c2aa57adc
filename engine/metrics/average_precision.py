"""Average precision of boxes and masks, as defined by COCO.

The definitions are those of pycocotools (`COCOeval`, cocodataset/cocoapi), and tests compare the results. There are ten
IoU thresholds and 101 recalls at which the precision is measured. Objects of all sizes count, but at most 100
detections of each class in an image. pycocotools evaluates all images in one process. Here, results are rows that can
be concatenated over ranks, and resampled for bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""Minimum IoUs of a detection and the object that it matches. Average precisions are averaged over them."""
RECALLS = np.linspace(0.0, 1.0, 101)
MAX_DETECTIONS = 100
"""Maximum number of detections that count per class and image. Those with the highest scores count."""
_CHUNK_PIXELS = 1 << 16
"""Maximum number of mask pixels that are compared at once.

It limits memory, since floats take four times as much as bools.
"""
CORRECT, WRONG, LEFT_OUT = 1, 0, -1
"""Outcomes of a detection at an IoU threshold: it matches an object, matches no object, or doesn't count."""


def compute_box_overlaps(detected: Floats, annotated: Floats, ignored: Bools) -> Floats:
    """Return the IoU of each of the boxes `detected` [d, 4] with each of the boxes `annotated` [g, 4], as [d, g].

    Boxes are x1, y1, x2, y2. An ignored box may cover many objects, so its overlap is the fraction of the detected box
    that is inside it.
    """
    ends = np.minimum(detected[:, None, 2:], annotated[None, :, 2:])
    starts = np.maximum(detected[:, None, :2], annotated[None, :, :2])
    intersections = (ends - starts).clip(min=0).prod(2)
    return _compute_overlap_ratios(intersections, _compute_areas(detected), _compute_areas(annotated), ignored)


def compute_mask_overlaps(detected: Bools, annotated: Bools, ignored: Bools) -> Floats:
    """Return the IoU of each of the masks `detected` [d, h, w] with each of the masks `annotated` [g, h, w], as [d, g].

    For ignored masks, see `compute_box_overlaps`.
    """
    pixels = detected.shape[1] * detected.shape[2]
    detected, annotated = detected.reshape(len(detected), pixels), annotated.reshape(len(annotated), pixels)
    intersections = np.zeros((len(detected), len(annotated)))
    for start in range(0, pixels, _CHUNK_PIXELS):
        chunk = np.s_[:, start : start + _CHUNK_PIXELS]
        intersections += detected[chunk].astype(np.float32) @ annotated[chunk].astype(np.float32).T
    return _compute_overlap_ratios(
        intersections, detected.sum(1, dtype=np.float64), annotated.sum(1, dtype=np.float64), ignored
    )


def _compute_areas(boxes: Floats) -> Floats:
    """Return the areas of boxes, [n]. A box whose corners are swapped has the area 0."""
    areas: Floats = (boxes[:, 2:] - boxes[:, :2]).clip(min=0).prod(1)
    return areas


def _compute_overlap_ratios(
    intersections: Floats, detected_areas: Floats, annotated_areas: Floats, ignored: Bools
) -> Floats:
    """Return the intersections [d, g] divided by the unions, or by the detected areas for ignored objects."""
    unions = detected_areas[:, None] + annotated_areas[None] - intersections
    unions = np.where(ignored[None], detected_areas[:, None], unions)
    return np.divide(intersections, unions, out=np.zeros_like(intersections), where=unions > 0)


def compute_outcomes(overlaps: Floats, ignored: Bools) -> Floats:
    """Return CORRECT, WRONG or LEFT_OUT for each detection of one class in one image at each threshold, [d, 10].

    Each detection is assigned to the unmatched object that it overlaps most. A detection is left out if it overlaps
    only an ignored object.

    Args:
        overlaps: Overlaps [d, g], with the detections in descending order of scores.
        ignored: Ignored objects, bool [g]. Any number of detections may be assigned to each.
    """
    return convert_to_outcomes(assign(overlaps, ignored, ignored), ignored)


def convert_to_outcomes(assigned: Ints, ignored: Bools) -> Floats:
    """Return CORRECT, WRONG or LEFT_OUT for each detection at each threshold, from the result of `assign`, [d, 10].

    Detections of the `ignored` objects, bool [g], are left out.
    """
    if not len(ignored):
        return np.full(assigned.shape, float(WRONG))
    return np.where(assigned < 0, WRONG, np.where(ignored[assigned], LEFT_OUT, CORRECT)).astype(np.float64)


def assign(overlaps: Floats, ignored: Bools, shared: Bools) -> Ints:
    """Return the object that each detection of one class in one image is assigned to at each threshold, [d, 10].

    It is the unmatched object that the detection overlaps most, given by its index, or -1 for none.

    Args:
        overlaps: Overlaps [d, g], with the detections in descending order of scores.
        ignored: Objects that are assigned only if no other object matches, bool [g].
        shared: Objects to which any number of detections may be assigned, bool [g].
    """
    assigned = np.full((len(overlaps), len(THRESHOLDS)), -1, np.int64)
    if not overlaps.shape[1]:
        return assigned
    is_free = np.ones((len(THRESHOLDS), overlaps.shape[1]), bool)
    all_thresholds = np.arange(len(THRESHOLDS))
    minimum = np.minimum(THRESHOLDS, 1 - 1e-10)[:, None]  # as in pycocotools
    for index, row in enumerate(overlaps):
        # Overlaps with the objects that this detection may be assigned to, [10, g], and -1 for the other objects.
        candidates = np.where((row >= minimum) & (is_free | shared), row, -1.0)
        counted_candidates = np.where(ignored, -1.0, candidates)
        # Ignored objects are candidates only if no other object is.
        candidates = np.where((counted_candidates >= 0).any(1, keepdims=True), counted_candidates, candidates)
        best = candidates.shape[1] - 1 - candidates[:, ::-1].argmax(1)  # the last of equal values, as in pycocotools
        is_matched = candidates[all_thresholds, best] >= 0
        assigned[index, is_matched] = best[is_matched]
        is_free[all_thresholds[is_matched], best[is_matched]] = False
    return assigned


def iterate_classes(classes: Ints, scores: Floats, true_classes: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield, for each detected class in an image, the indices of its detections and of its annotated objects.

    Args:
        classes: Class of each detection, [d].
        scores: Score of each detection, [d]. Only the `MAX_DETECTIONS` detections of a class with the highest scores
            are included, in descending order of scores.
        true_classes: Class of each annotated object, [g].
    """
    for number in np.unique(classes):
        detections = np.flatnonzero(classes == number)
        best = detections[np.argsort(-scores[detections], kind="stable")][:MAX_DETECTIONS]
        yield best, np.flatnonzero(true_classes == number)


def match_detections(
    classes: Ints, scores: Floats, true_classes: Ints, ignored: Bools, overlaps: Sequence[Floats]
) -> Floats:
    """Return a row for each of the d detections in an image with g annotated objects.

    A row consists of the class, the score, and the results of `compute_outcomes` at the ten thresholds for each item of
    `overlaps`. At most `MAX_DETECTIONS` detections of a class get a row.

    Args:
        classes: Class of each detection, [d].
        scores: Score of each detection, [d].
        true_classes: Class of each object, [g].
        ignored: True for ignored objects, [g].
        overlaps: Overlaps [d, g] of the detections with the objects, one item for boxes and, if there are masks, one
            for masks.
    """
    rows = [np.empty((0, 2 + len(overlaps) * len(THRESHOLDS)))]
    for detections, objects in iterate_classes(classes, scores, true_classes):
        outcomes = [compute_outcomes(item[np.ix_(detections, objects)], ignored[objects]) for item in overlaps]
        rows.append(np.column_stack([classes[detections], scores[detections], *outcomes]))
    return np.concatenate(rows)


def compute_average_precisions(rows: Floats, counts: Floats) -> Floats:
    """Return the average precision of each class at each of t thresholds, [classes, t]. It is NaN for an absent class.

    Args:
        rows: Rows from `match_detections` for one kind of overlap and all images, [k, 2 + t]: the class, the score, and
            the outcome at each threshold.
        counts: Number of objects of each class that are not ignored, [classes].
    """
    precisions = np.full((len(counts), rows.shape[1] - 2), np.nan)
    rows = rows[np.lexsort((-rows[:, 1], rows[:, 0]))]
    bounds = np.searchsorted(rows[:, 0], np.arange(len(counts) + 1))
    for class_number in np.flatnonzero(counts):
        outcomes = rows[bounds[class_number] : bounds[class_number + 1], 2:]
        correct, wrong = (outcomes == CORRECT).cumsum(0), (outcomes == WRONG).cumsum(0)
        recall = correct / counts[class_number]
        precision = correct / (correct + wrong + np.spacing(1))
        precision = np.maximum.accumulate(precision[::-1])[::-1]  # the highest precision at this recall or above
        precision = np.concatenate([precision, np.zeros((1, outcomes.shape[1]))])  # 0 for unreached recalls
        for index in range(outcomes.shape[1]):
            precisions[class_number, index] = precision[np.searchsorted(recall[:, index], RECALLS), index].mean()
    return precisions
