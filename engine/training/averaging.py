"""An exponential moving average of the weights (Polyak and Juditsky 1992; Tan and Le 2019 for image models)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from engine.torch_compat import lerp_all


class Averages:
    """`average = decay * average + (1 - decay) * weight` after every step, for the `weights` that this rank holds.

    It begins at the weights as they are when it is made.
    """

    def __init__(self, weights: Sequence[Tensor], decay: float) -> None:
        self.decay = decay
        self._weights = list(weights)
        self.tensors = [weight.detach().clone() for weight in weights]

    @torch.no_grad()
    def update(self) -> None:
        if self.tensors:
            lerp_all(self.tensors, self._weights, 1.0 - self.decay)

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
