"""Classes of pixels, lines and edges: their boundaries, and what a threshold leaves."""

from __future__ import annotations

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import ClassCurves
from engine.inference.evaluation.analysis import OWN, Analysis, Intervals, Measured
from engine.inference.evaluation.bootstrap import Values
from engine.metrics.base import Metric
from engine.metrics.boundaries import THRESHOLDS
from engine.metrics.boundary_iou import BoundaryMetric


class PixelAnalysis(Analysis):
    entries = (Measure("boundary_iou", "Mean boundary IoU", higher_is_better=True, percent=True),)

    def metrics(self, scale: float) -> dict[str, Metric]:
        return {OWN: self.objective.metric(), "boundaries": BoundaryMetric(len(self.classes))}


class RoadAnalysis(Analysis):
    entries = (
        Measure("relaxed_precision", "Relaxed precision", higher_is_better=True, percent=True),
        Measure("relaxed_recall", "Relaxed recall", higher_is_better=True, percent=True),
    )

    def values(self, measured: Measured) -> Values:
        measures, per_class = super().values(measured)
        precision, recall = measured.own.relaxed()
        return Values({**measures, "relaxed_precision": precision, "relaxed_recall": recall}, per_class)


class EdgeAnalysis(Analysis):
    def curves(self, measured: Measured, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """Of edges by the thresholds of the benchmark, from high ones to low."""
        metric = measured.own
        recall, precision = metric.curve()
        scores = metric.scores()
        return (
            ClassCurves(
                class_index=0,
                positives=metric.drawn,
                recall=tuple(recall[::-1].tolist()),
                precision=tuple(precision[::-1].tolist()),
                thresholds=tuple(THRESHOLDS[::-1].tolist()),
                average_precision=intervals.measures.get("ap"),
                best_threshold=scores.threshold,
                best_f1=scores.ods,
            ),
        )
