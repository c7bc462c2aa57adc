"""The state of a metric for each sample alone, of which that for any choice of samples can be put together.

So what is measured can be measured again of resamples, whatever the task: counters are added, rows put one after
another, and what is in neither goes by the metric's own `sync`, as if each sample had been another rank's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, vstack
from torch import Tensor

from engine.metrics.base import Metric

Ints = npt.NDArray[np.int64]
AnyMetric = TypeVar("AnyMetric", bound=Metric)


class Packed(NamedTuple):
    """States as they are written to a file: counters as those of a sparse matrix [n, k], `rows` [r, w] with how many
    each sample has, and what else there is of each sample, by the calls of `sync`.
    """

    width: int
    indptr: Tensor
    indices: Tensor
    values: Tensor
    rows: Tensor
    row_counts: Tensor
    others: list[list[Any]]


class Recorder:
    """Collects the states of one metric, sample by sample."""

    def __init__(self) -> None:
        self._width = 0
        self._indices: list[Tensor] = []
        self._values: list[Tensor] = []
        self._rows: list[Tensor] = []
        self._others: list[list[Any]] = []

    def add(self, metric: Metric) -> None:
        """Adds the next sample's, whose metric has seen it alone."""
        counters = metric.counters.detach().cpu().flatten()
        self._width = len(counters)
        there = counters.nonzero().flatten()
        self._indices.append(there)
        self._values.append(counters[there])
        self._rows.append(metric.rows.detach().cpu())
        others: list[Any] = []

        def gather(value: Any) -> list[Any]:
            others.append(value)
            return [value]

        metric.sync(gather)
        self._others.append(others)

    def packed(self) -> Packed:
        counts = torch.tensor([0, *map(len, self._indices)], dtype=torch.int64)
        there = [rows for rows in self._rows if len(rows)]
        return Packed(
            self._width,
            counts.cumsum(0),
            torch.cat([torch.empty(0, dtype=torch.int64), *self._indices]),
            torch.cat([torch.empty(0, dtype=torch.float64), *self._values]),
            torch.cat(there) if there else torch.empty((0, 0), dtype=torch.float64),
            torch.tensor([len(rows) for rows in self._rows], dtype=torch.int64),
            self._others if any(self._others) else [],
        )


class States:
    """The states of one metric for all samples, in their order."""

    def __init__(self, parts: Sequence[Packed], order: Ints) -> None:
        """`order` [n] says where the samples of the parts, one after another, are to stand: the `order[i]`th is the
        ith.
        """
        matrices = [
            csr_array(
                (part.values.numpy(), part.indices.numpy(), part.indptr.numpy()), (len(part.row_counts), part.width)
            )
            for part in parts
            if len(part.row_counts)
        ]
        counts = np.concatenate([part.row_counts.numpy() for part in parts])
        self._counters = vstack(matrices, format="csr")[order]
        starts = np.cumsum(counts) - counts
        counts = counts[order]
        self._owners = np.repeat(np.arange(len(order)), counts)
        within = np.arange(len(self._owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = [part.rows for part in parts if len(part.rows)]
        self._rows = torch.cat(rows)[torch.from_numpy(starts[order][self._owners] + within)] if rows else None
        others = [each for part in parts for each in part.others]
        self._others = [others[index] for index in order.tolist()] if others else []

    def fill(self, metric: AnyMetric, weights: Ints) -> AnyMetric:
        """`metric`, a new one, as if it had seen each sample as often as `weights` [n] says."""
        summed = np.asarray(weights @ self._counters, dtype=np.float64)
        metric.counters = torch.from_numpy(summed).view(metric.counters.shape)
        if self._rows is not None:
            chosen = np.repeat(np.arange(len(self._owners)), weights[self._owners])
            metric.rows = self._rows[torch.from_numpy(chosen)]
        if self._others:
            drawn = np.repeat(np.arange(len(weights)), weights).tolist()
            metric.sync(self._gather(drawn))
        return metric

    def _gather(self, drawn: list[int]) -> Callable[[Any], list[Any]]:
        """What gives the `drawn` samples' values, call by call in the order in which they were recorded."""
        calls = iter(range(len(self._others[0])))

        def gather(_: Any) -> list[Any]:
            call = next(calls)
            return [self._others[index][call] for index in drawn]

        return gather
