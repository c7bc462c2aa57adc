"""Precision and recall above thresholds, and precision-recall curves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import ClassCurves, Interval, ThresholdRow
from engine.metrics.label_curves import Counts, best_f1, precision_recall, thin

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(20))


def threshold_rows(
    confidence: npt.NDArray[np.float64], right: npt.NDArray[np.bool_], positives: float
) -> tuple[ThresholdRow, ...]:
    """Return a row for each of `THRESHOLDS` for predictions [n]; `positives` is how many can be right."""
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
    """Return the precision-recall curve of a class with `positives` samples."""
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
