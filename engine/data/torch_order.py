"""The order of an epoch as runs drew it before their streams were hashed: by torch's generator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch


class TorchOrder:
    """torch's generator, from which an epoch's order was drawn."""

    def __init__(self, number: int) -> None:
        self._generator = torch.Generator().manual_seed(number)

    def permutation(self, length: int, /) -> npt.NDArray[np.int64]:
        order: npt.NDArray[np.int64] = torch.randperm(length, generator=self._generator).numpy()
        return order

    def random(self) -> float:
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))
