"""Interface for the metrics of validations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Metric(ABC):
    """Metrics of a validation, which are updated batch by batch and then merged over the ranks.

    Task metrics do not use torchmetrics, because their state must merge over ranks with different numbers of batches.
    The state must also be separable by sample, so that an evaluation can resample it. In custom tasks, metrics from
    torchmetrics use `torchmetrics_states`.

    Attributes:
        counters: float64 values that are summed over the ranks.
    """

    counters: Tensor
    _rows: Tensor = torch.empty((0, 0), dtype=torch.float64)
    _pending: Sequence[Tensor] = ()  # rows that are not in `_rows` yet

    @property
    def rows(self) -> Tensor:
        """Values that are concatenated over batches and ranks instead of summed like `counters`, float64 [k, w]."""
        if self._pending:  # joined on request, since joining in every update takes quadratic time
            self.rows = torch.cat([*([self._rows] if len(self._rows) else []), *self._pending])
        return self._rows

    @rows.setter
    def rows(self, rows: Tensor) -> None:
        self._rows, self._pending = rows, []

    def add_rows(self, rows: Tensor) -> None:
        """Append the values of a batch, float64 [k, w], to the property `rows`."""
        if len(rows):
            if not isinstance(self._pending, list):  # the default, which all instances share
                self._pending = []
            self._pending.append(rows)

    def reset(self) -> None:
        """Delete all counters and rows, before a new validation."""
        self.counters, self.rows = torch.zeros_like(self.counters), self.rows[:0]

    @abstractmethod
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add the data of a batch. Outputs and targets may be on any device."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """Return the values of the metrics by id, or {} if there is no data."""

    def sync(self, all_gather: Callable[[Any], list[Any]]) -> None:  # noqa: B027 - most have no other state
        """Merge over the ranks any state that is neither in `counters` nor in `rows`. By default, there is none.

        `all_gather` returns the argument of each rank, in the order of ranks.
        """

    def per_class(self) -> dict[str, tuple[float | None, ...]]:
        """Return the metrics of each class, by the title of the metric.

        The values are fractions in the order of the classes, and None for an absent class.
        """
        return {}

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        """Return the confusion matrix, or () if there is none.

        It has a row for each true class, with the number of predictions of each class.
        """
        return ()
