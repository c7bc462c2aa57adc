"""Kinds of detection errors and their costs after TIDE, with COCO's matching at an IoU of 0.5.

Source: Bolya et al. 2020, "TIDE: A General Toolbox for Identifying Object Detection Errors", section 2. The kind of a
wrong detection is the first of these that applies:

- *localization*: it overlaps an object of its class by 0.1 to 0.5;
- *classification*: it overlaps an object of another class by 0.5 or more;
- *duplicate*: it repeats a correct detection;
- *background*: it overlaps nothing by more than 0.1;
- *both*: both its class and its location are wrong.

An object is *missed* if no detection matches it and it is not involved in a localization or classification error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.contract.inference.evaluation import ErrorKind
from engine.metrics.average_precision import (
    CORRECT,
    LEFT_OUT,
    WRONG,
    Bools,
    Floats,
    Ints,
    assign,
    compute_average_precisions,
    convert_to_outcomes,
    iterate_classes,
)

FOREGROUND_IOU, BACKGROUND_IOU = 0.5, 0.1
KINDS: tuple[ErrorKind, ...] = ("classification", "localization", "both", "duplicate", "background")
"""Kinds of detection errors. Rows contain the index of the kind in this tuple, or -1 for no error."""
NO_ERROR = -1
COLUMNS = 5
CLASS, SCORE, OUTCOME, KIND, CORRECTED_CLASS = range(COLUMNS)
"""Columns of `ImageErrors.rows`."""


class ImageErrors(NamedTuple):
    """Detection errors in one image.

    Attributes:
        rows: One row for each detection, [k, 5]. The columns are its class, its score, its outcome (CORRECT, WRONG or
            LEFT_OUT of `average_precision`), the index of its error in `KINDS` or `NO_ERROR`, and its class after a
            correction, or -1 if a correction would remove it.
        missed: Classes of the missed objects, [m].
    """

    rows: Floats
    missed: Ints


def find_errors(classes: Ints, scores: Floats, true_classes: Ints, ignored: Bools, overlaps: Floats) -> ImageErrors:
    """Return the errors among d detections in an image with g objects.

    `classes` and `scores` are those of the detections, [d], and `true_classes` those of the objects, [g]. `ignored` is
    True for ignored objects, [g]. `overlaps` are the overlaps of the detections with the objects, [d, g].
    """
    is_matched = np.zeros(len(true_classes), bool)
    # Indices of the evaluated detections, class by class, and their outcomes.
    detection_lists, outcomes = [np.empty(0, np.int64)], [np.empty(0)]
    for class_detections, objects in iterate_classes(classes, scores, true_classes):
        overlaps_in_class = overlaps[np.ix_(class_detections, objects)]
        assigned = assign(overlaps_in_class, ignored[objects], ignored[objects])[:, :1]  # at an IoU of 0.5
        detection_lists.append(class_detections)
        outcomes.append(convert_to_outcomes(assigned, ignored[objects])[:, 0])
        is_matched[objects[assigned[assigned >= 0]]] = True
    detections, all_outcomes = np.concatenate(detection_lists), np.concatenate(outcomes)
    not_ignored = np.flatnonzero(~ignored)
    kinds, nearly_matched = _classify_errors(
        all_outcomes,
        classes[detections],
        true_classes[not_ignored],
        overlaps[np.ix_(detections, not_ignored)],
    )
    is_correctable = _find_correctable(nearly_matched, scores[detections], is_matched[not_ignored])
    corrected_classes = np.full(len(detections), -1)
    corrected_classes[is_correctable] = true_classes[not_ignored][nearly_matched[is_correctable]]
    # The columns are described at `ImageErrors`.
    rows = np.column_stack([classes[detections], scores[detections], all_outcomes, kinds, corrected_classes])
    is_missed = ~is_matched[not_ignored]
    is_missed[nearly_matched[nearly_matched >= 0]] = False
    return ImageErrors(rows, true_classes[not_ignored][is_missed])


def _classify_errors(outcomes: Floats, classes: Ints, true_classes: Ints, overlaps: Floats) -> tuple[Ints, Ints]:
    """Return the kind of error of each detection, and the object that it would match without the error.

    The kind is an index in `KINDS`, or `NO_ERROR`. The object is the index of the one that a localization or
    classification error refers to, and -1 for other detections.

    Args:
        outcomes: CORRECT, WRONG or LEFT_OUT for each of the d detections, at an IoU of 0.5.
        classes: Class of each detection, [d].
        true_classes: Class of each of the g objects that are not ignored.
        overlaps: Overlaps of the detections with the objects, [d, g].
    """
    if not len(true_classes):
        background = np.where(outcomes == WRONG, KINDS.index("background"), NO_ERROR)
        return background, np.full(len(outcomes), -1)
    has_same_class = classes[:, None] == true_classes[None]
    class_overlaps, other_overlaps = np.where(has_same_class, overlaps, 0), np.where(has_same_class, 0, overlaps)
    best_overlap = class_overlaps.max(1)
    # The first condition that a wrong detection meets decides. Without any, the kind is "both".
    conditions: dict[ErrorKind, Bools] = {
        "localization": (best_overlap >= BACKGROUND_IOU) & (best_overlap <= FOREGROUND_IOU),
        "classification": other_overlaps.max(1) >= FOREGROUND_IOU,
        "duplicate": best_overlap > FOREGROUND_IOU,  # the object is matched, or else it would match this detection
        "background": overlaps.max(1) <= BACKGROUND_IOU,
    }
    kind_indices = [KINDS.index(kind) for kind in conditions]
    errors = np.select(
        [outcomes != WRONG, *conditions.values()], [NO_ERROR, *kind_indices], default=KINDS.index("both")
    )
    objects = np.select(
        [errors == KINDS.index("localization"), errors == KINDS.index("classification")],
        [class_overlaps.argmax(1), other_overlaps.argmax(1)],
        -1,
    )
    return errors, objects


def _find_correctable(objects: Ints, scores: Floats, is_matched: Bools) -> Bools:
    """Return a bool array that is True for detections that become correct if their error is corrected.

    For each unmatched object, this is only the detection with the highest score. `objects` is the second result of
    `_classify_errors`, and `is_matched` is True for matched objects.
    """
    is_correctable = np.zeros(len(objects), bool)
    is_taken = is_matched.copy()
    for detection in np.argsort(-scores, kind="stable").tolist():
        target = int(objects[detection])
        if target >= 0 and not is_taken[target]:
            is_correctable[detection] = is_taken[target] = True
    return is_correctable


def compute_error_costs(rows: Floats, counts: Floats, missed: Floats) -> dict[ErrorKind, tuple[int, float]]:
    """Return the number of errors of each kind, and the gain in AP50 if all errors of this kind were corrected.

    Args:
        rows: Rows of `ImageErrors` for all images, [k, 5].
        counts: Number of objects of each class, [classes].
        missed: Number of missed objects of each class, [classes].
    """
    base = _compute_ap50(rows, counts)
    cost_of_kind: dict[ErrorKind, tuple[int, float]] = {}
    for number, kind in enumerate(KINDS):
        is_wrong = rows[:, KIND] == number
        corrected = rows.copy()
        is_correctable = is_wrong & (rows[:, CORRECTED_CLASS] >= 0)
        corrected[is_correctable, CLASS] = rows[is_correctable, CORRECTED_CLASS]
        corrected[is_correctable, OUTCOME] = CORRECT
        corrected[is_wrong & ~is_correctable, OUTCOME] = LEFT_OUT
        cost_of_kind[kind] = int(is_wrong.sum()), _compute_ap50(corrected, counts) - base
    cost_of_kind["missed"] = int(missed.sum()), _compute_ap50(rows, counts - missed) - base
    return cost_of_kind


def _compute_ap50(rows: Floats, counts: Floats) -> float:
    """Return the mean average precision at an IoU of 0.5 over the classes that have objects, or 0 if none has.

    `rows` are detections, [k, 3 or more]. Only their columns CLASS, SCORE and OUTCOME are used. `counts` [classes] are
    the numbers of objects of each class.
    """
    precisions = compute_average_precisions(rows[:, :3], counts)[:, 0]
    of_present_classes = precisions[~np.isnan(precisions)]
    return float(of_present_classes.mean()) if len(of_present_classes) else 0.0
