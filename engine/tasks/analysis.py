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
"""Key of the task's own metric in `Measured.metrics`. The other keys are metrics of plug-ins."""

Indices = tuple[int, ...]


class Values(NamedTuple):
    """Metric values keyed by metric id, and per-class values keyed by column title."""

    measures: Mapping[str, float]
    per_class: Mapping[str, ClassValues]


@dataclass
class Columns:
    """Per-sample results of one batch or of all batches, as in `engine.contract.inference.evaluation.Samples`.

    A field is None if the task has no such result. `probabilities` are the label probabilities, float32 [n, C].
    """

    correct: list[float] | None = None
    true: list[Indices] | None = None
    predicted: list[Indices] | None = None
    confidence: list[float] | None = None
    probabilities: npt.NDArray[np.float32] | None = None


@dataclass
class EvaluatedMetrics:
    """Evaluated metrics keyed by name, and the results of all samples.

    `weights` [n] says how many times each sample is counted in the metrics, as in a bootstrap resample.
    """

    metrics: Mapping[str, Metric]
    weights: npt.NDArray[np.int64]
    columns: Columns

    @property
    def task_metric(self) -> Any:
        """Metric of the task, without the metrics that plug-ins add to it."""
        metric = self.metrics[TASK_METRIC]
        return metric.base if isinstance(metric, MetricWithPlugins) else metric


@dataclass
class Intervals:
    """Confidence intervals of metrics keyed by metric id, and of per-class values keyed by column title."""

    measures: Mapping[str, Interval] = field(default_factory=dict)
    per_class: Mapping[str, Sequence[Interval | None]] = field(default_factory=dict)


class MeasuredObjective(Protocol):
    """Methods of an objective that an analysis uses."""

    def metric(self) -> Metric:
        """Create an empty validation metric."""
        ...

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples in a batch, or None if this task defines no correct samples."""
        ...


class Analysis:
    """Analysis of models with the metrics of their objective.

    Attributes:
        entries: Catalogue entries of the metrics that the analysis adds to those of the task.
        depends_on_file_size: True if its metrics depend on the original size of the images in pixels.
    """

    entries: tuple[Measure, ...] = ()
    depends_on_file_size = False

    def __init__(self, objective: MeasuredObjective, classes: Sequence[str]) -> None:
        self.objective = objective
        self.classes = classes

    def metrics(self, scale: float) -> dict[str, Metric]:
        """Create the metrics to evaluate, keyed by name.

        `scale` is the side length of the original image divided by that of the loaded image.
        """
        return {TASK_METRIC: self.objective.metric()}

    def columns(self, outputs: Tensor, targets: Tensor) -> Columns:
        """Return the results of each sample in a batch, such as correctness and confidence."""
        fractions = []
        for output, target in zip(outputs.split(1), targets.split(1), strict=True):
            fraction = self.objective.correct(output, target)
            if fraction is None:
                return Columns()
            fractions.append(fraction.float())
        return Columns(correct=torch.stack(fractions).tolist())

    def prepare(self, columns: Columns) -> None:
        """Receive the results of all samples. This is called once, before the other methods that use them."""

    def values(self, measured: EvaluatedMetrics) -> Values:
        """Compute the metrics. If several have the same id, the metric of the task takes precedence."""
        measures: dict[str, float] = {}
        per_class: dict[str, ClassValues] = {}
        for metric in measured.metrics.values():
            measures = metric.compute() | measures
            per_class = metric.per_class() | per_class
        return Values(measures, per_class)

    def details(self, measured: EvaluatedMetrics, intervals: Intervals) -> dict[str, Any]:
        """Return the fields of the `Evaluation` that only this task fills, such as calibration, keyed by field name."""
        return {}

    def curves(self, measured: EvaluatedMetrics, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """Return the curves of each class, or an empty tuple if the analysis has none."""
        return ()
