"""An exponential moving average of the weights (Polyak and Juditsky 1992; Tan and Le 2019 for image models)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from engine.torch_compat import lerp_all


class Averages:
    """`average = decay * average + (1 - decay) * weight` after every step, for the `weights` that this rank holds, the
    statistics of BatchNorm among them.

    It begins at the weights as they are when it is made, which a short run would hardly get away from: the decay
    rises as `decay * (1 - exp(-step / ramp))`, after YOLOv5's ModelEMA; with a `ramp` of 0 it is the same from the
    start.
    """

    def __init__(self, weights: Sequence[Tensor], decay: float, ramp: int = 0) -> None:
        self._decay, self._ramp = decay, ramp
        self._weights = list(weights)
        self.tensors = [weight.detach().clone() for weight in weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Takes in the weights after the `step`th update."""
        risen = 1.0 - math.exp(-step / self._ramp) if self._ramp else 1.0
        if self.tensors:
            lerp_all(self.tensors, self._weights, 1.0 - self._decay * risen)

    @torch.no_grad()
    def restart(self, averages: Sequence[Tensor | None]) -> None:
        """Goes on from `averages`, or from the weight as it is now for each that is None."""
        for own, weight, average in zip(self.tensors, self._weights, averages, strict=True):
            own.copy_(weight if average is None else average)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the weights are their averages. No third copy is held: each two change places."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for weight, average in zip(self._weights, self.tensors, strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)
