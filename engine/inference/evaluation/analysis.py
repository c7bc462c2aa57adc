"""What is told of a model beside its task's own measures: the same for all tasks here, more of some in `ANALYSES`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import ClassCurves, Interval
from engine.inference.evaluation.bootstrap import Values
from engine.metrics.base import Metric
from engine.metrics.class_counts import Shares
from engine.metrics.registry import WithAdded
from engine.tasks.base import Objective

OWN = ""
"""The name of the task's own metric among those of an analysis."""

Indices = tuple[int, ...]


@dataclass
class Columns:
    """How a model did on each sample of a batch, or of all, as `engine.contract.inference.evaluation.Samples` has it,
    and of labels their `probabilities`, float32 [n, C].
    """

    correct: list[float] | None = None
    true: list[Indices] | None = None
    predicted: list[Indices] | None = None
    confidence: list[float] | None = None
    probabilities: npt.NDArray[np.float32] | None = None


@dataclass
class Measured:
    """Metrics by name, as if they had seen each sample as often as `weights` [n] says, and the columns of all
    samples.
    """

    metrics: Mapping[str, Metric]
    weights: npt.NDArray[np.int64]
    columns: Columns

    @property
    def own(self) -> Any:
        """The task's own metric, without what plug-ins add."""
        metric = self.metrics[OWN]
        return metric.own if isinstance(metric, WithAdded) else metric


@dataclass
class Intervals:
    """Those of measures by id, and those of each class by title."""

    measures: Mapping[str, Interval] = field(default_factory=dict)
    per_class: Mapping[str, Sequence[Interval | None]] = field(default_factory=dict)


class Analysis:
    """What is told of models that learn `objective`: its own measures."""

    entries: tuple[Measure, ...] = ()
    """The measures that are added to the task's own."""
    scaled = False
    """Whether its metrics depend on how large images are on disk."""

    def __init__(self, objective: Objective, classes: Sequence[str]) -> None:
        self.objective = objective
        self.classes = classes

    def metrics(self, scale: float) -> dict[str, Metric]:
        """New metrics for one sample, by name; of an image that was made `1 / scale` times as large as it is on
        disk.
        """
        return {OWN: self.objective.metric()}

    def columns(self, outputs: Tensor, targets: Tensor) -> Columns:
        """How the model did on each sample of a batch."""
        shares = []
        for output, target in zip(outputs.split(1), targets.split(1), strict=True):
            share = self.objective.correct(output, target)
            if share is None:
                return Columns()
            shares.append(share.float())
        return Columns(correct=torch.stack(shares).tolist())

    def begin(self, columns: Columns) -> None:
        """Is given the columns of all samples, once and before anything is asked of them."""

    def values(self, measured: Measured) -> Values:
        """What the metrics give; where an analysis adds what the task has already, the task's counts."""
        measures: dict[str, float] = {}
        per_class: dict[str, Shares] = {}
        for metric in measured.metrics.values():
            measures = metric.compute() | measures
            per_class = metric.per_class() | per_class
        return Values(measures, per_class)

    def details(self, measured: Measured, intervals: Intervals) -> dict[str, Any]:
        """Further fields of an Evaluation, by name."""
        return {}

    def curves(self, measured: Measured, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """The curves of each class, if there are any."""
        return ()
