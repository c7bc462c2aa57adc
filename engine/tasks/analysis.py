"""Analysis of a model beyond the metrics of its task: additional metrics, results for each sample, and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import ClassCurves, Interval
from engine.metrics.base import Metric
from engine.metrics.class_counts import ClassValues
from engine.metrics.registry import MetricWithPlugins

TASK_METRIC = ""
"""Key of the task's metric in `EvaluatedMetrics.metrics`. The other keys are metrics that the analysis adds."""

Indices = tuple[int, ...]


class MetricValues(NamedTuple):
    """Metric values keyed by metric id, and the values of each class keyed by the title of their table column."""

    measures: Mapping[str, float]
    per_class: Mapping[str, ClassValues]


@dataclass
class SampleColumns:
    """Results of n samples, with one entry per sample in each field, or None if the task has no such result.

    Attributes:
        correct: Score of the prediction from 0 (wrong) to 1 (correct).
        true: Indices of the true classes.
        predicted: Indices of the predicted classes.
        confidence: Probability or score of the prediction.
        probabilities: Probabilities of all classes, float32 [n, C].
    """

    correct: list[float] | None = None
    true: list[Indices] | None = None
    predicted: list[Indices] | None = None
    confidence: list[float] | None = None
    probabilities: npt.NDArray[np.float32] | None = None


@dataclass
class EvaluatedMetrics:
    """Evaluated metrics keyed by name, and the results of all samples.

    `weights` [n] holds how often the metrics count each sample, for example in a bootstrap resample.
    """

    metrics: Mapping[str, Metric]
    weights: npt.NDArray[np.int64]
    columns: SampleColumns

    @property
    def task_metric(self) -> Any:
        """Metric of the task, without the metrics that plug-ins add to it."""
        metric = self.metrics[TASK_METRIC]
        return metric.base if isinstance(metric, MetricWithPlugins) else metric


@dataclass
class Intervals:
    """Confidence intervals of metrics by id, and those in the columns of the table of classes by the column's title."""

    measures: Mapping[str, Interval] = field(default_factory=dict)
    per_class: Mapping[str, Sequence[Interval | None]] = field(default_factory=dict)


class MeasuredObjective(Protocol):
    """Methods of an objective that an analysis uses."""

    def create_metric(self) -> Metric:
        """Create an empty validation metric."""
        ...

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples in a batch, or None if this task defines no correct samples."""
        ...


class Analysis:
    """Evaluation of a model with the metric of its objective, additional metrics, sample results and curves.

    Attributes:
        entries: Catalogue entries of the additional metrics.
        depends_on_file_size: True if the metrics depend on the original size of the images in pixels.
    """

    entries: tuple[Measure, ...] = ()
    depends_on_file_size = False

    def __init__(self, objective: MeasuredObjective, classes: Sequence[str]) -> None:
        self.objective = objective
        self.classes = classes

    def create_metrics(self, scale: float) -> dict[str, Metric]:
        """Create the metrics to evaluate, keyed by name.

        `scale` is the side length of the original image divided by that of the loaded image.
        """
        return {TASK_METRIC: self.objective.create_metric()}

    def compute_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """Return the results of each sample in a batch, such as correctness and confidence."""
        fractions = []
        for output, target in zip(outputs.split(1), targets.split(1), strict=True):
            fraction = self.objective.count_correct(output, target)
            if fraction is None:
                return SampleColumns()
            fractions.append(fraction.float())
        return SampleColumns(correct=torch.stack(fractions).tolist())

    def prepare(self, columns: SampleColumns) -> None:
        """Compute values from the results of all samples for later use in other methods. By default, do nothing."""

    def compute_values(self, measured: EvaluatedMetrics) -> MetricValues:
        """Compute the values of all metrics. If metrics have the same id, the metric of the task takes precedence."""
        measures: dict[str, float] = {}
        per_class: dict[str, ClassValues] = {}
        for metric in measured.metrics.values():
            measures = metric.compute() | measures
            per_class = metric.per_class() | per_class
        return MetricValues(measures, per_class)

    def compute_details(self, measured: EvaluatedMetrics, intervals: Intervals) -> dict[str, Any]:
        """Return the fields of the `Evaluation` that only this task fills, such as calibration, keyed by field name."""
        return {}

    def compute_curves(self, measured: EvaluatedMetrics, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """Return the curves of each class, or an empty tuple if the analysis has none."""
        return ()
