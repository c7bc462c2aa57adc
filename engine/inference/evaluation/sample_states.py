"""Metric states of single samples, which can be combined for any selection of samples.

With them, the metrics of any task can be recomputed for resamples. Counters are added, rows are concatenated, and all
other state is merged by the metric's `sync`, as if each sample had been on a different rank.
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


class PackedStates(NamedTuple):
    """Metric states of n samples in the form that is stored in a file.

    Counters are sums over samples. Those of the single samples form a sparse CSR matrix [n, width]. Rows, such as one
    for each detection, are concatenated: the first `row_counts[0]` of the `rows` [r, w] belong to the first sample, and
    so on. `others` holds, for each sample, the values that `Metric.sync` gathers instead of adding them up.
    """

    width: int
    indptr: Tensor
    indices: Tensor
    values: Tensor
    rows: Tensor
    row_counts: Tensor
    others: list[list[Any]]


class StateRecorder:
    """Recorder for the state of a metric after each single sample."""

    def __init__(self) -> None:
        self._counter_count = 0  # number of the metric's counters
        # Each list has an item per sample.
        self._counter_indices: list[Tensor] = []  # of the counters that aren't 0
        self._counter_values: list[Tensor] = []  # of the same counters
        self._rows: list[Tensor] = []  # the metric's `rows`
        self._synced_values: list[list[Any]] = []  # other state, which the metric's `sync` gathers from the ranks

    def add(self, metric: Metric) -> None:
        """Record the state of a metric that was updated only with the next sample."""
        counters = metric.counters.detach().cpu().flatten()
        self._counter_count = len(counters)
        nonzero = counters.nonzero().flatten()
        self._counter_indices.append(nonzero)
        self._counter_values.append(counters[nonzero])
        self._rows.append(metric.rows.detach().cpu())
        synced_values: list[Any] = []

        def gather(value: Any) -> list[Any]:
            """Record a value that a metric's `sync` gathers from the ranks, and return [value], as on a single rank."""
            synced_values.append(value)
            return [value]

        metric.sync(gather)
        self._synced_values.append(synced_values)

    def pack(self) -> PackedStates:
        """Return the recorded states of all samples in the form that is stored in a file."""
        counts = torch.tensor([0, *map(len, self._counter_indices)], dtype=torch.int64)
        nonempty = [rows for rows in self._rows if len(rows)]
        return PackedStates(
            width=self._counter_count,
            indptr=counts.cumsum(0),
            indices=torch.cat([torch.empty(0, dtype=torch.int64), *self._counter_indices]),
            values=torch.cat([torch.empty(0, dtype=torch.float64), *self._counter_values]),
            rows=torch.cat(nonempty) if nonempty else torch.empty((0, 0), dtype=torch.float64),
            row_counts=torch.tensor([len(rows) for rows in self._rows], dtype=torch.int64),
            others=self._synced_values if any(self._synced_values) else [],
        )


class SampleStates:
    """Metric states of all samples, in the order of the samples."""

    def __init__(self, packed: Sequence[PackedStates], order: Ints) -> None:
        """Merge the packed states of several workers.

        The states are concatenated. Then sample `order[i]` of the concatenation becomes sample i.
        """
        matrices = [
            csr_array(
                (states.values.numpy(), states.indices.numpy(), states.indptr.numpy()),
                (len(states.row_counts), states.width),
            )
            for states in packed
            if len(states.row_counts)
        ]
        self._counters = vstack(matrices, format="csr")[order]
        unordered_counts = np.concatenate([states.row_counts.numpy() for states in packed])
        first_rows = np.cumsum(unordered_counts) - unordered_counts  # of each sample in the concatenation
        row_counts = unordered_counts[order]
        self._row_samples = np.repeat(np.arange(len(order)), row_counts)  # sample of each row
        new_first_rows = np.cumsum(row_counts) - row_counts
        index_in_sample = np.arange(len(self._row_samples)) - new_first_rows[self._row_samples]
        row_order = torch.from_numpy(first_rows[order][self._row_samples] + index_in_sample)
        rows = [states.rows for states in packed if len(states.rows)]
        self._rows = torch.cat(rows)[row_order] if rows else None
        synced = [values for states in packed for values in states.others]
        self._synced = [synced[index] for index in order.tolist()] if synced else []  # values for `sync` by sample

    def fill(self, metric: AnyMetric, weights: Ints) -> AnyMetric:
        """Set the state of a new metric as if it had been updated with the samples, and return it.

        `weights` [n] says how often it was updated with each sample.
        """
        counters = np.asarray(weights @ self._counters, dtype=np.float64)
        metric.counters = torch.from_numpy(counters).view(metric.counters.shape)
        if self._rows is not None:
            row_weights = torch.from_numpy(weights[self._row_samples])
            metric.rows = self._rows.repeat_interleave(row_weights, 0)
        if self._synced:
            samples = np.repeat(np.arange(len(weights)), weights).tolist()
            metric.sync(self._gather(samples))
        return metric

    def _gather(self, samples: list[int]) -> Callable[[Any], list[Any]]:
        """Return a function to pass to a metric's `sync` as `all_gather`, with samples in place of ranks.

        The k-th call of the function returns, for each of `samples`, the value that `StateRecorder` recorded in the
        k-th call.
        """
        calls = iter(range(len(self._synced[0])))

        def gather(_: Any) -> list[Any]:
            call = next(calls)
            return [self._synced[sample][call] for sample in samples]

        return gather
