"""What is left of predictions above a threshold, and their curve of precision by recall."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import ClassCurves, Interval, ThresholdRow
from engine.metrics.label_curves import Counts, best_f1, precision_recall, thinned

THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(20))


def threshold_rows(
    confidence: npt.NDArray[np.float64], right: npt.NDArray[np.bool_], there: float
) -> tuple[ThresholdRow, ...]:
    """A row for each of `THRESHOLDS`, of predictions [n]; `there` is how many could be right."""
    rows = []
    for threshold in THRESHOLDS:
        kept = confidence >= threshold
        found, count = float(right[kept].sum()), float(kept.sum())
        rows.append(
            ThresholdRow(
                threshold=threshold,
                share=count / max(len(confidence), 1),
                precision=found / count if count else None,
                recall=found / there if there else None,
                f1=2 * found / (count + there) if count + there else None,
            )
        )
    return tuple(rows)


def class_curves(number: int, counts: Counts, positives: int, precision: Interval | None) -> ClassCurves:
    """The curve of precision by recall of the class of that number, of which there are so many `positives`."""
    whole = precision_recall(counts, positives)
    threshold, f1 = best_f1(whole)
    curve = thinned(whole)
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
