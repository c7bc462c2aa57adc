"""Precision-recall and ROC curves for one class against all others. Samples may have weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import ClassCurves, Interval, ThresholdRow

Floats = npt.NDArray[np.float64]

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(20))
"""Confidence thresholds at which precision and recall are listed for the user."""
MAX_POINTS = 200
"""Maximum number of points in a saved curve."""


class Counts(NamedTuple):
    """Correct and wrong predictions of a class at each of the descending `thresholds` [t].

    `true_positives` [t] is the total weight of the predicted samples with the class, `false_positives` [t] that of the
    predicted samples without it.
    """

    thresholds: Floats
    true_positives: Floats
    false_positives: Floats


class Curve(NamedTuple):
    """Points of a precision-recall or ROC curve, in descending order of thresholds, each [t].

    For a precision-recall curve, `x` is the recall and `y` the precision. For a ROC curve, they are the false positive
    rate and the true positive rate.
    """

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
        # Indices in the ranking of the last sample with each distinct score.
        self._last_of_score = (
            np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1) if len(ranked) else np.empty(0, int)
        )
        self._thresholds = ranked[self._last_of_score]

    def compute_counts(self, weights: npt.NDArray[np.integer] | None = None) -> Counts:
        """Return the true and false positives of the class at all thresholds.

        Samples with equal scores share a threshold. `weights` [n] are the weights of the samples, by default 1.
        """
        ranked_weights = np.ones(len(self._order)) if weights is None else weights[self._order].astype(np.float64)
        true_positives = np.cumsum(np.where(self._true, ranked_weights, 0))[self._last_of_score]
        return Counts(self._thresholds, true_positives, np.cumsum(ranked_weights)[self._last_of_score] - true_positives)


def average_precision(counts: Counts) -> float | None:
    """Return the area under the step curve of precision over recall, or None if there are no positive samples.

    It equals scikit-learn's `average_precision_score`. In a bootstrap, it takes a fifteenth of the time, since scores
    are sorted only once. The function in torchmetrics does not support weights.
    """
    correct, predicted = counts.true_positives, counts.true_positives + counts.false_positives
    if not len(correct) or not correct[-1]:
        return None
    precision = np.divide(correct, predicted, out=np.zeros_like(correct), where=predicted > 0)
    return float((np.diff(correct, prepend=0) * precision).sum() / correct[-1])


def compute_roc_area(counts: Counts) -> float | None:
    """Return the area under the ROC curve by the trapezoidal rule.

    Returns None if there are no positive or no other samples. The area is the probability that a positive sample has a
    higher score than another sample, where ties count half (Hanley and McNeil 1982).
    """
    correct, wrong = (np.append(0, counts.true_positives), np.append(0, counts.false_positives))
    if not correct[-1] or not wrong[-1]:
        return None
    return float((np.diff(wrong) * (correct[1:] + correct[:-1])).sum() / (2 * correct[-1] * wrong[-1]))


def compute_precision_recall(counts: Counts, positives: float | None = None) -> Curve:
    """Return the curve of precision over recall.

    `positives` is the number of samples that should be found, or None for all positive samples that have a score.
    """
    correct = counts.true_positives
    positives = correct[-1] if positives is None else positives
    return Curve(correct / positives, correct / (correct + counts.false_positives), counts.thresholds)


def compute_roc(counts: Counts) -> Curve:
    """Return the ROC curve, the true positive rate as a function of the false positive rate.

    It starts at (0, 0) with an infinite threshold.
    """
    return Curve(
        np.append(0, counts.false_positives / counts.false_positives[-1]),
        np.append(0, counts.true_positives / counts.true_positives[-1]),
        np.append(np.inf, counts.thresholds),
    )


def find_best_f1(curve: Curve) -> tuple[float, float]:
    """Return the threshold with the highest F1 on a precision-recall curve, and this F1."""
    f1 = 2 * curve.x * curve.y / np.maximum(curve.x + curve.y, 1e-12)
    best = int(np.argmax(f1))
    return float(curve.thresholds[best]), float(f1[best])


def reduce_points(curve: Curve) -> Curve:
    """Return a curve with at most `MAX_POINTS` of its points, including both ends, spaced evenly along the curve."""
    if len(curve.x) <= MAX_POINTS:
        return curve
    # Distance of each point from the first one along the curve.
    distances = np.concatenate([[0], np.cumsum(np.hypot(np.diff(curve.x), np.diff(curve.y)))])
    positions = np.linspace(0, distances[-1], MAX_POINTS - 1)
    last = len(distances) - 1
    indices = np.unique(np.append(np.searchsorted(distances, positions).clip(max=last), last))
    return Curve(curve.x[indices], curve.y[indices], curve.thresholds[indices])


def compute_threshold_rows(
    confidence: npt.NDArray[np.float64], is_correct: npt.NDArray[np.bool_], positives: float
) -> tuple[ThresholdRow, ...]:
    """Return precision, recall and F1 at each of `THRESHOLDS`, given each prediction's confidence and correctness, [n].

    `positives` is the number of targets that predictions can find.
    """
    rows = []
    for threshold in THRESHOLDS:
        is_above = confidence >= threshold
        correct_count, predicted_count = float(is_correct[is_above].sum()), float(is_above.sum())
        rows.append(
            ThresholdRow(
                threshold=threshold,
                share=predicted_count / max(len(confidence), 1),
                precision=correct_count / predicted_count if predicted_count else None,
                recall=correct_count / positives if positives else None,
                f1=2 * correct_count / (predicted_count + positives) if predicted_count + positives else None,
            )
        )
    return tuple(rows)


def create_class_curves(number: int, counts: Counts, positives: int, precision: Interval | None) -> ClassCurves:
    """Return the precision-recall curve of a class, reduced to few points for saving.

    Args:
        number: Index of the class.
        counts: Counts at all thresholds.
        positives: Number of samples that have the class.
        precision: Average precision with its confidence interval, or None if it is undefined.
    """
    full_curve = compute_precision_recall(counts, positives)
    threshold, f1 = find_best_f1(full_curve)
    curve = reduce_points(full_curve)
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
