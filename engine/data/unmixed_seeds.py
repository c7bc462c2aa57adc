"""How streams began before they were told apart by a hash. Only runs that go on from a checkpoint of that time go by it: it
was promised to them that they end as if they had never stopped, to the bit.

Then seed 0 drew the order of its epoch 2 as seed 1 that of its epoch 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from engine.data.randomness import Purpose, mix


def unmixed_number(seed: int, purpose: Purpose, *, epoch: int, batch: int, rank: int) -> int:
    """What a generator was seeded with."""
    if purpose in (Purpose.ORDER, Purpose.MODEL):
        return seed + epoch + rank
    if purpose is Purpose.MIX:  # as SeedSequence puts the words of (seed, epoch, batch) together
        return seed | epoch << 32 | batch << 64
    if purpose is Purpose.TRANSFORM:
        return int(np.random.SeedSequence((seed, epoch, batch, rank)).generate_state(1)[0])
    return mix(mix(seed) ^ epoch)


class TorchOrder:
    """What an epoch's order was drawn from: torch's generator."""

    def __init__(self, number: int) -> None:
        self._generator = torch.Generator().manual_seed(number)

    def permutation(self, length: int, /) -> npt.NDArray[np.int64]:
        order: npt.NDArray[np.int64] = torch.randperm(length, generator=self._generator).numpy()
        return order

    def random(self) -> float:
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))
