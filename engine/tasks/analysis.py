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
from engine.metrics.class_counts import Shares
from engine.metrics.registry import WithAdded

TASK_METRIC = ""
"""Name of the task's own metric in `Measured.metrics`."""

Indices = tuple[int, ...]


class Values(NamedTuple):
    """Values of metrics by id, and of metrics per class by title."""

    measures: Mapping[str, float]
    per_class: Mapping[str, Shares]


@dataclass
class Columns:
    """Results for each sample in one or all batches, as in `engine.contract.inference.evaluation.Samples`.

    `probabilities` are label probabilities, float32 [n, C].
    """

    correct: list[float] | None = None
    true: list[Indices] | None = None
    predicted: list[Indices] | None = None
    confidence: list[float] | None = None
    probabilities: npt.NDArray[np.float32] | None = None


@dataclass
class Measured:
    """Metrics by name, and the results for all samples.

    Each sample is counted in the metrics as often as its entry in `weights` [n] says.
    """

    metrics: Mapping[str, Metric]
    weights: npt.NDArray[np.int64]
    columns: Columns

    @property
    def task_metric(self) -> Any:
        """Metric of the task, excluding the metrics that plug-ins add."""
        metric = self.metrics[TASK_METRIC]
        return metric.base if isinstance(metric, WithAdded) else metric


@dataclass
class Intervals:
    """Confidence intervals of metrics by id, and of metrics per class by title."""

    measures: Mapping[str, Interval] = field(default_factory=dict)
    per_class: Mapping[str, Sequence[Interval | None]] = field(default_factory=dict)


class MeasuredObjective(Protocol):
    """Part of an objective that an analysis uses."""

    def metric(self) -> Metric:
        """Create the validation metric, without any data."""
        ...

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples in a batch, or None if it is undefined."""
        ...


class Analysis:
    """Analysis of models with the metrics of their objective.

    Attributes:
        entries: Metrics that the analysis adds to those of the task.
        scaled: True if its metrics depend on the size of the image files.
    """

    entries: tuple[Measure, ...] = ()
    scaled = False

    def __init__(self, objective: MeasuredObjective, classes: Sequence[str]) -> None:
        self.objective = objective
        self.classes = classes

    def metrics(self, scale: float) -> dict[str, Metric]:
        """Return new metrics by name for one sample.

        `scale` is the size of the image file relative to the loaded image.
        """
        return {TASK_METRIC: self.objective.metric()}

    def columns(self, outputs: Tensor, targets: Tensor) -> Columns:
        """Return the results for each sample in a batch."""
        fractions = []
        for output, target in zip(outputs.split(1), targets.split(1), strict=True):
            fraction = self.objective.correct(output, target)
            if fraction is None:
                return Columns()
            fractions.append(fraction.float())
        return Columns(correct=torch.stack(fractions).tolist())

    def prepare(self, columns: Columns) -> None:
        """Receive the results for all samples. This is called once, before any other results are requested."""

    def values(self, measured: Measured) -> Values:
        """Return the values of the metrics. If several have the same id, the metric of the task takes precedence."""
        measures: dict[str, float] = {}
        per_class: dict[str, Shares] = {}
        for metric in measured.metrics.values():
            measures = metric.compute() | measures
            per_class = metric.per_class() | per_class
        return Values(measures, per_class)

    def details(self, measured: Measured, intervals: Intervals) -> dict[str, Any]:
        """Return additional fields for an `Evaluation` by name."""
        return {}

    def curves(self, measured: Measured, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """Return the curves for each class, if there are any."""
        return ()
