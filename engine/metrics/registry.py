"""Metrics that plug-ins add to validations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.metrics.base import Metric
from engine.system.plugins import Registry, UnusablePluginError


class AddedMetric(NamedTuple):
    """Metric that a plug-in adds to the validations of `tasks`, a tuple of their ids.

    `sums(outputs, targets)` returns numbers for a batch, [length], which are summed over all batches and ranks.
    `value(sums)` computes the metric from the total sums. Outputs, float32 [n, ...], and targets are those that the
    task's loss gets.
    """

    title: str
    tasks: tuple[str, ...]
    length: int
    sums: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor], float]
    higher_is_better: bool = True
    percent: bool = False

    def create_entry(self, name: str) -> Measure:
        """Return the catalogue entry of the metric with this id."""
        return Measure(name, self.title, self.higher_is_better, self.percent)


def _validate_plugin(name: str, loaded: object) -> AddedMetric:
    """Return the metric that a plug-in registers as `name`.

    Raises UnusablePluginError if it is not an `AddedMetric`.
    """
    if not isinstance(loaded, AddedMetric):
        raise UnusablePluginError(f"it is a {type(loaded).__name__}, not an AddedMetric of engine.metrics.registry")
    return loaded


METRICS: Registry[AddedMetric] = Registry("footplate.metrics", {}, _validate_plugin)


def find_plugin_metrics(task: str, task_metrics: tuple[Measure, ...]) -> dict[str, AddedMetric]:
    """Return the metrics that plug-ins add to a task, by id.

    Metrics whose id is already used in `task_metrics` are removed from the registry, which reports them as unusable.
    """
    task_ids = {measure.id for measure in task_metrics}
    for name, metric in METRICS.load_plugins().items():
        if task in metric.tasks and name in task_ids:
            METRICS.leave_out(name, f"the task {task} already has a metric of that name")
    return {name: metric for name, metric in METRICS.load_plugins().items() if task in metric.tasks}


class MetricWithPlugins(Metric):
    """Metrics of a task, together with metrics that plug-ins have added.

    `counters` has the counters of the task, followed by the sums of each added metric.
    """

    def __init__(self, base: Metric, added: Mapping[str, AddedMetric]) -> None:
        self.base = base
        self._added = added
        self._sums = torch.zeros(sum(metric.length for metric in added.values()), dtype=torch.float64)

    @property
    def counters(self) -> Tensor:
        return torch.cat([self.base.counters.flatten(), self._sums.to(self.base.counters.device)])

    @counters.setter
    def counters(self, counters: Tensor) -> None:
        before = self.base.counters
        self.base.counters = counters[: before.numel()].view(before.shape)
        self._sums = counters[before.numel() :]

    @property
    def rows(self) -> Tensor:
        return self.base.rows

    @rows.setter
    def rows(self, rows: Tensor) -> None:
        self.base.rows = rows

    def reset(self) -> None:
        self.base.reset()
        self._sums = torch.zeros_like(self._sums)

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Update the task's own metrics with a batch, and add the batch's sums for each plug-in metric to the totals."""
        self.base.update(outputs, targets)
        if len(targets):
            sums = [metric.sums(outputs, targets).double() for metric in self._added.values()]
            self._sums = self._sums.to(outputs.device) + torch.cat(sums)

    def sync(self, all_gather: Callable[[Any], list[Any]]) -> None:
        self.base.sync(all_gather)

    def compute(self) -> dict[str, float]:
        """Return the values of the built-in metrics, followed by those from plug-ins, by id, or {} without samples."""
        values = self.base.compute()
        if not values:
            return {}
        sums_of_metrics = self._sums.cpu().split([metric.length for metric in self._added.values()])
        metrics_with_sums = zip(self._added.items(), sums_of_metrics, strict=True)
        return values | {name: float(metric.value(sums)) for (name, metric), sums in metrics_with_sums}

    def per_class(self) -> dict[str, tuple[float | None, ...]]:
        return self.base.per_class()

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        return self.base.confusion()
