"""Measures that plug-ins add to a validation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.metrics.base import Metric
from engine.system.plugins import Registry, Unusable


class AddedMetric(NamedTuple):
    """A measure that a plug-in adds to the validations of `tasks`, which are named by their ids.

    `sums(outputs, targets)` gives `length` numbers of a batch, [length], which are added up over all batches and
    ranks; `value(sums)` makes the measure of them. Outputs are float32 [n, ...] and, with the targets, as the task's
    loss takes them.
    """

    title: str
    tasks: tuple[str, ...]
    length: int
    sums: Callable[[Tensor, Tensor], Tensor]
    value: Callable[[Tensor], float]
    higher_is_better: bool = True
    percent: bool = False

    def entry(self, name: str) -> Measure:
        return Measure(name, self.title, self.higher_is_better, self.percent)


def _accept(name: str, loaded: object) -> AddedMetric:
    if not isinstance(loaded, AddedMetric):
        raise Unusable(f"it is a {type(loaded).__name__}, not an AddedMetric of engine.metrics.registry")
    return loaded


METRICS: Registry[AddedMetric] = Registry("footplate.metrics", {}, _accept)


def added_to(task: str, own: tuple[Measure, ...]) -> dict[str, AddedMetric]:
    """Return the metrics of plug-ins for a task by id; one whose id is among the task's `own` is left out."""
    known = {measure.id for measure in own}
    for name, metric in METRICS.added().items():
        if task in metric.tasks and name in known:
            METRICS.leave_out(name, f"the task {task} already has a metric of that name")
    return {name: metric for name, metric in METRICS.added().items() if task in metric.tasks}


class WithAdded(Metric):
    """A task's `own` measures, and those that plug-ins add. `counters`: the own, then the sums of each of the added."""

    def __init__(self, own: Metric, added: Mapping[str, AddedMetric]) -> None:
        self._own = own
        self._added = added
        self._sums = torch.zeros(sum(metric.length for metric in added.values()), dtype=torch.float64)

    @property
    def own(self) -> Metric:
        """The task's metric."""
        return self._own

    @property
    def counters(self) -> Tensor:
        return torch.cat([self._own.counters.flatten(), self._sums.to(self._own.counters.device)])

    @counters.setter
    def counters(self, counters: Tensor) -> None:
        own = self._own.counters
        self._own.counters = counters[: own.numel()].view(own.shape)
        self._sums = counters[own.numel() :]

    @property
    def rows(self) -> Tensor:
        return self._own.rows

    @rows.setter
    def rows(self, rows: Tensor) -> None:
        self._own.rows = rows

    def reset(self) -> None:
        self._own.reset()
        self._sums = torch.zeros_like(self._sums)

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self._own.update(outputs, targets)
        if len(targets):
            sums = [metric.sums(outputs, targets).double() for metric in self._added.values()]
            self._sums = self._sums.to(outputs.device) + torch.cat(sums)

    def sync(self, all_gather: Callable[[Any], list[Any]]) -> None:
        self._own.sync(all_gather)

    def compute(self) -> dict[str, float]:
        values = self._own.compute()
        if not values:
            return {}
        parts = self._sums.cpu().split([metric.length for metric in self._added.values()])
        added = zip(self._added.items(), parts, strict=True)
        return values | {name: float(metric.value(sums)) for (name, metric), sums in added}

    def per_class(self) -> dict[str, tuple[float | None, ...]]:
        return self._own.per_class()

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        return self._own.confusion()
