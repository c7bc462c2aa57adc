"""What collects a validation's measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Metric(ABC):
    """Collects a validation's measures batch by batch.

    Both are float64: `counters` are summed over the ranks, which gives the counters of the whole whatever the order;
    `rows` [k, w], for what cannot be counted, are put one after another, by rank. What is neither is for `sync`.
    """

    counters: Tensor
    rows: Tensor = torch.empty((0, 0), dtype=torch.float64)

    def reset(self) -> None:
        """Begins anew, with nothing added."""
        self.counters, self.rows = torch.zeros_like(self.counters), self.rows[:0]

    @abstractmethod
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds one batch, on whatever device it is."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """The measures by id; empty where nothing was added."""

    def sync(self, all_gather: Callable[[Any], list[Any]]) -> None:  # noqa: B027 - most hold nothing else
        """Puts together over the ranks what is in neither `counters` nor `rows`, by `all_gather`, which gives each
        rank's value, by rank.
        """

    def per_class(self) -> dict[str, tuple[float | None, ...]]:
        """Measures of each class by their titles, shares in the order of the classes, None for one that does not
        occur.
        """
        return {}

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        """A row for each true class of how often each class was found."""
        return ()
