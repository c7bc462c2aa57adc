"""Precision-recall and ROC curves for one class against all others. Samples may have weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import ClassCurves, Interval, ThresholdRow

Floats = npt.NDArray[np.float64]

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(20))
"""Confidence thresholds in the list of precision and recall."""
MAX_POINTS = 200
"""Maximum number of points in a saved curve."""


class Counts(NamedTuple):
    """Total weights of the samples whose score reaches each of the `thresholds` [t], in descending order.

    `right` is the weight of positive samples, which have the class, and `wrong` that of all others.
    """

    thresholds: Floats
    right: Floats
    wrong: Floats


class Curve(NamedTuple):
    """Curve whose points are in descending order of thresholds."""

    x: Floats
    y: Floats
    thresholds: Floats


class RankedScores:
    """Scores [n] for one class, sorted once so that counts can be computed for any weights.

    The samples that have the class are given by a bool array [n].
    """

    def __init__(self, scores: npt.NDArray[np.floating], true: npt.NDArray[np.bool_]) -> None:
        self._order = np.argsort(-scores, kind="stable")
        ranked = scores[self._order].astype(np.float64)
        self._true = true[self._order]
        self._ends = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1) if len(ranked) else np.empty(0, int)
        self._thresholds = ranked[self._ends]

    def counts(self, weights: npt.NDArray[np.integer] | None = None) -> Counts:
        """Return the counts at all thresholds.

        Samples with equal scores share a threshold. Without `weights`, all are 1.
        """
        ranked = np.ones(len(self._order)) if weights is None else weights[self._order].astype(np.float64)
        right = np.cumsum(np.where(self._true, ranked, 0))[self._ends]
        return Counts(self._thresholds, right, np.cumsum(ranked)[self._ends] - right)


def average_precision(counts: Counts) -> float | None:
    """Return the area under the step curve of precision over recall, or None if there are no positive samples.

    It equals scikit-learn's `average_precision_score`. In a bootstrap, it takes a fifteenth of the time, since scores
    are sorted only once. The function in torchmetrics does not support weights.
    """
    right, all_found = counts.right, counts.right + counts.wrong
    if not len(right) or not right[-1]:
        return None
    precision = np.divide(right, all_found, out=np.zeros_like(right), where=all_found > 0)
    return float((np.diff(right, prepend=0) * precision).sum() / right[-1])


def roc_area(counts: Counts) -> float | None:
    """Return the area under the ROC curve by the trapezoidal rule.

    Returns None if there are no positive or no other samples. The area is the probability that a positive sample has a
    higher score than another sample, where ties count half (Hanley and McNeil 1982).
    """
    right, wrong = np.concatenate([[0], counts.right]), np.concatenate([[0], counts.wrong])
    if not right[-1] or not wrong[-1]:
        return None
    return float((np.diff(wrong) * (right[1:] + right[:-1])).sum() / (2 * right[-1] * wrong[-1]))


def precision_recall(counts: Counts, positives: float | None = None) -> Curve:
    """Return the curve of precision over recall.

    `positives` is the number of samples that should be found, or None for all positive samples that have a score.
    """
    positives = counts.right[-1] if positives is None else positives
    return Curve(counts.right / positives, counts.right / (counts.right + counts.wrong), counts.thresholds)


def roc(counts: Counts) -> Curve:
    """Return the ROC curve, the true positive rate as a function of the false positive rate.

    It starts at (0, 0) with an infinite threshold.
    """
    return Curve(
        np.append(0, counts.wrong / counts.wrong[-1]),
        np.append(0, counts.right / counts.right[-1]),
        np.append(np.inf, counts.thresholds),
    )


def best_f1(curve: Curve) -> tuple[float, float]:
    """Return the threshold with the highest F1 on a precision-recall curve, and this F1."""
    both = 2 * curve.x * curve.y / np.maximum(curve.x + curve.y, 1e-12)
    best = int(np.argmax(both))
    return float(curve.thresholds[best]), float(both[best])


def thin(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """Reduce a curve to at most `max_points` points, including its ends. They are spaced evenly along the curve."""
    if len(curve.x) <= max_points:
        return curve
    along = np.concatenate([[0], np.cumsum(np.hypot(np.diff(curve.x), np.diff(curve.y)))])
    positions = np.linspace(0, along[-1], max_points - 1)
    chosen = np.unique(np.append(np.searchsorted(along, positions).clip(max=len(along) - 1), len(along) - 1))
    return Curve(curve.x[chosen], curve.y[chosen], curve.thresholds[chosen])


def threshold_rows(
    confidence: npt.NDArray[np.float64], right: npt.NDArray[np.bool_], positives: float
) -> tuple[ThresholdRow, ...]:
    """Return a row for each of `THRESHOLDS`.

    Args:
        confidence: Confidence of each prediction, [n].
        right: True for correct predictions, [n].
        positives: Number of targets that predictions can find.
    """
    rows = []
    for threshold in THRESHOLDS:
        is_above = confidence >= threshold
        found, count = float(right[is_above].sum()), float(is_above.sum())
        rows.append(
            ThresholdRow(
                threshold=threshold,
                share=count / max(len(confidence), 1),
                precision=found / count if count else None,
                recall=found / positives if positives else None,
                f1=2 * found / (count + positives) if count + positives else None,
            )
        )
    return tuple(rows)


def class_curves(number: int, counts: Counts, positives: int, precision: Interval | None) -> ClassCurves:
    """Return the precision-recall curve of a class, reduced to few points for saving.

    Args:
        number: Number of the class.
        counts: Counts at all thresholds.
        positives: Number of samples that have the class.
        precision: Average precision with its confidence interval, or None if it is undefined.
    """
    full = precision_recall(counts, positives)
    threshold, f1 = best_f1(full)
    curve = thin(full)
    return ClassCurves(
        class_index=number,
        positives=positives,
        recall=tuple(curve.x.tolist()),
        precision=tuple(curve.y.tolist()),
        thresholds=tuple(curve.thresholds.tolist()),
        average_precision=precision,
        best_threshold=threshold,
        best_f1=f1,
    )
