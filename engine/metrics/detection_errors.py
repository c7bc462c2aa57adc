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
    LEFT_OUT,
    MAX_DETECTIONS,
    RIGHT,
    WRONG,
    Bools,
    Floats,
    Ints,
    assign,
    average_precisions,
    outcomes_of,
)

FOREGROUND, BACKGROUND = 0.5, 0.1
KINDS: tuple[ErrorKind, ...] = ("classification", "localization", "both", "duplicate", "background")
"""Kinds of detection errors. Rows contain the index of the kind in this tuple, or -1 for no error."""
NO_ERROR = -1
COLUMNS = 5


class ImageErrors(NamedTuple):
    """Detection errors in one image.

    Attributes:
        rows: One row for each detection, [k, 5]. The columns are its class, its score, its result (see
            `average_precision`), its kind of error, and the class that it would have if it were corrected. The latter
            is -1 if it would be removed.
        missed: Classes of the missed objects, [m].
    """

    rows: Floats
    missed: Ints


def find_errors(classes: Ints, scores: Floats, true_classes: Ints, ignored: Bools, overlaps: Floats) -> ImageErrors:
    """Return the detection errors in one image.

    Args:
        classes: Classes of the detections, [d].
        scores: Scores of the detections, [d].
        true_classes: Classes of the objects, [g].
        ignored: Ignored objects, bool [g].
        overlaps: Overlaps of the detections with the objects, [d, g].
    """
    used = np.zeros(len(true_classes), bool)
    counted, outcomes = [np.empty(0, np.int64)], [np.empty(0)]
    for number in np.unique(classes):
        found = np.flatnonzero(classes == number)
        found = found[np.argsort(-scores[found], kind="stable")][:MAX_DETECTIONS]
        true = np.flatnonzero(true_classes == number)
        taken = assign(overlaps[np.ix_(found, true)], ignored[true], ignored[true])[:, :1]
        counted.append(found)
        outcomes.append(outcomes_of(taken, ignored[true])[:, 0])
        used[true[taken[taken >= 0]]] = True
    detections, outcome = np.concatenate(counted), np.concatenate(outcomes)
    real = np.flatnonzero(~ignored)
    kinds, objects = _kinds(
        outcome, classes[detections], true_classes[real], used[real], overlaps[np.ix_(detections, real)]
    )
    corrected = _correctable(objects, scores[detections], used[real])
    becomes = np.where(corrected, true_classes[real][objects] if len(real) else -1, -1)
    rows = np.column_stack([classes[detections], scores[detections], outcome, kinds, becomes])
    nearly = np.zeros(len(real), bool)
    nearly[objects[objects >= 0]] = True
    return ImageErrors(rows.reshape(-1, COLUMNS), true_classes[real][~used[real] & ~nearly])


def _kinds(outcome: Floats, classes: Ints, true_classes: Ints, used: Bools, overlaps: Floats) -> tuple[Ints, Ints]:
    """Return the kind of error of each detection, and the index of the object that it nearly matches, or -1 for none.

    `outcome` has the result of each detection at an IoU of 0.5, and `used` is True for matched objects.
    """
    if not len(true_classes):
        background = np.where(outcome == WRONG, KINDS.index("background"), NO_ERROR)
        return background, np.full(len(outcome), -1)
    same = classes[:, None] == true_classes[None]
    of_class, of_others = np.where(same, overlaps, 0), np.where(same, 0, overlaps)
    near = of_class.max(1)
    conditions = [
        outcome != WRONG,
        (near >= BACKGROUND) & (near <= FOREGROUND),
        of_others.max(1) >= FOREGROUND,
        np.where(used[None], of_class, 0).max(1) >= FOREGROUND,
        overlaps.max(1) <= BACKGROUND,
    ]
    kinds = ["localization", "classification", "duplicate", "background"]
    found = np.select(conditions, [NO_ERROR, *(KINDS.index(kind) for kind in kinds)], KINDS.index("both"))
    objects = np.select(
        [found == KINDS.index("localization"), found == KINDS.index("classification")],
        [of_class.argmax(1), of_others.argmax(1)],
        -1,
    )
    return found, objects


def _correctable(objects: Ints, scores: Floats, used: Bools) -> Bools:
    """Return a bool array that is True for detections that would become correct if their error were corrected.

    For each unmatched object, only the detection with the highest score would. `objects` are the indices of the objects
    that the detections nearly match, and `used` is True for matched objects.
    """
    corrected = np.zeros(len(objects), bool)
    taken = used.copy()
    for number in np.argsort(-scores, kind="stable").tolist():
        target = int(objects[number])
        if target >= 0 and not taken[target]:
            corrected[number] = taken[target] = True
    return corrected


def costs(rows: Floats, counts: Floats, missed: Floats) -> dict[ErrorKind, tuple[int, float]]:
    """Return the number of errors of each kind, and the gain in AP50 if all errors of this kind were corrected.

    Args:
        rows: Rows from `find_errors` for all images, [k, 5].
        counts: Number of objects of each class, [classes].
        missed: Number of missed objects of each class, [classes].
    """
    base = _ap50(rows, counts)
    found: dict[ErrorKind, tuple[int, float]] = {}
    for number, kind in enumerate(KINDS):
        wrong = rows[:, 3] == number
        corrected = rows.copy()
        right = wrong & (rows[:, 4] >= 0)
        corrected[right, 0], corrected[right, 2] = rows[right, 4], RIGHT
        corrected[wrong & ~right, 2] = LEFT_OUT
        found[kind] = int(wrong.sum()), _ap50(corrected, counts) - base
    found["missed"] = int(missed.sum()), _ap50(rows, counts - missed) - base
    return found


def _ap50(rows: Floats, counts: Floats) -> float:
    precisions = average_precisions(rows[:, :3], counts)[:, 0]
    present = precisions[~np.isnan(precisions)]
    return float(present.mean()) if len(present) else 0.0
