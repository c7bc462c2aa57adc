"""Exponential moving averages of weights (Polyak and Juditsky 1992; for image models Tan and Le 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from engine.torch_compat import lerp_all


class Averages:
    """Moving averages of this rank's `weights`, which may include buffers.

    An update sets each average to `decay * average + (1 - decay) * weight`. The averages start with the current
    weights. A constant decay would give these too much influence in a short run, so the decay increases as `decay * (1
    - exp(-step / ramp))`, as in YOLOv5's ModelEMA. With a `ramp` of 0, it is constant.
    """

    def __init__(self, weights: Sequence[Tensor], decay: float, ramp: int = 0) -> None:
        self._decay, self._ramp = decay, ramp
        self._weights = list(weights)
        self.tensors = [weight.detach().clone() for weight in weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the averages with the current weights, after update number `step` of the weights."""
        warmup_factor = 1.0 - math.exp(-step / self._ramp) if self._ramp else 1.0
        if self.tensors:
            lerp_all(self.tensors, self._weights, 1.0 - self._decay * warmup_factor)

    @torch.no_grad()
    def restart(self, averages: Iterable[Tensor | None]) -> None:
        """Set each average to the item of `averages` at its position, or to the current weight if the item is None."""
        for tensor, weight, new_average in zip(self.tensors, self._weights, averages, strict=True):
            tensor.copy_(weight if new_average is None else new_average)

    @contextmanager
    def swap_in(self) -> Iterator[None]:
        """Context manager that swaps the weights and their averages, and swaps them back when it exits.

        They are swapped one tensor at a time to save memory.
        """
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for weight, average in zip(self._weights, self.tensors, strict=True):
            saved_weight = weight.clone()
            weight.copy_(average)
            average.copy_(saved_weight)
