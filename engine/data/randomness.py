"""The random streams of a run: each is identified by the seed, its purpose, and when and where it is used.

Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 0xFFFFFFFFFFFFFFFF

UNMIXED = 1
"""The rule of checkpoints that name none: how streams began before they were told apart by a hash. Only runs that go
on from a checkpoint of that time go by it: it was promised to them that they end as if they had never stopped, to the
bit. Then seed 0 drew the order of its epoch 2 as seed 1 that of its epoch 1."""
MIXED = 2
"""Streams begin at a hash of all that tells them apart."""


class Purpose(IntEnum):
    """The purpose of a stream. The numbers are part of a seed's meaning: they never change."""

    ORDER = 1
    """The order of an epoch's samples."""
    CROP = 2
    """Crops and mirror images of the light augmentation."""
    MIX = 3
    """Mixup and CutMix."""
    TRANSFORM = 4
    """What a task of the user's own draws in its `transform`."""
    POINTS = 5
    """Which points of a block a sample has."""
    TURN = 6
    """How a sample of points is turned."""
    MODEL = 7
    """What the model draws in training, as dropout does."""
    AUGMENT = 8
    """The transforms of an augmentation other than the light one."""
    PARTNERS = 9
    """Which other images a mosaic is made of."""


class Order(Protocol):
    """The numpy.random.Generator of an epoch's order."""

    def permutation(self, length: int, /) -> npt.NDArray[np.int64]: ...

    def random(self) -> float: ...


@dataclass(frozen=True)
class RandomStreams:
    """The streams of a run with `seed`, 0 to 2**31 - 1.

    By the rule `MIXED` no two streams of any seeds are the same or parts of each other, within 64 bits; generators of
    torch's on the CPU go by 32 of them. Fresh weights alone are drawn from the seed as it is, so that they are those
    of `torch.manual_seed(seed)` in any script.
    """

    seed: int
    rule: int = MIXED

    def number(self, purpose: Purpose, *, epoch: int = 0, batch: int = 0, rank: int = 0) -> int:
        """The 64-bit seed of a generator: numpy's hash (SeedSequence, after O'Neill 2015) of all of them."""
        if self.rule == UNMIXED and purpose < Purpose.AUGMENT:
            return _unmixed_number(self.seed, purpose, epoch=epoch, batch=batch, rank=rank)
        words = np.random.SeedSequence((self.seed, purpose, epoch, batch, rank)).generate_state(1, np.uint64)
        return int(words[0])

    def generator(self, purpose: Purpose, *, epoch: int, batch: int) -> np.random.Generator:
        return np.random.default_rng(self.number(purpose, epoch=epoch, batch=batch))

    def order(self, epoch: int) -> Order:
        number = self.number(Purpose.ORDER, epoch=epoch)
        if self.rule == UNMIXED:
            from engine.data.torch_order import TorchOrder  # which brings torch with it

            return TorchOrder(number)
        return np.random.default_rng(number)

    def draw(
        self, purpose: Purpose, epoch: int, samples: npt.NDArray[np.int64], count: int, *, part: int = 0
    ) -> npt.NDArray[np.float64]:
        """Numbers in [0, 1) as [count, n]: as many per sample, independent of each other, for whole batches at once.
        Each `part` of a purpose has numbers of its own.

        SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) as a hash of the
        counters, so that neither threads nor the number of workers nor what was drawn before matter.
        """
        begun = self.number(purpose, epoch=epoch, batch=part)
        starts = np.array([mix(begun ^ column) for column in range(count)], np.uint64)
        bits = _mix_all(samples.astype(np.uint64) ^ starts[:, None])
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _unmixed_number(seed: int, purpose: Purpose, *, epoch: int, batch: int, rank: int) -> int:
    """A generator's seed by the rule `UNMIXED`."""
    if purpose in (Purpose.ORDER, Purpose.MODEL):
        return seed + epoch + rank
    if purpose is Purpose.MIX:  # as SeedSequence puts the words of (seed, epoch, batch) together
        return seed | epoch << 32 | batch << 64
    if purpose is Purpose.TRANSFORM:
        return int(np.random.SeedSequence((seed, epoch, batch, rank)).generate_state(1)[0])
    return mix(mix(seed) ^ epoch)


def mix(state: int) -> int:
    """SplitMix64's next number after `state`, both of 64 bits."""
    state = (state + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * _FIRST) & _MASK
    state = ((state ^ (state >> 27)) * _SECOND) & _MASK
    return state ^ (state >> 31)


def _mix_all(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """`mix` of whole arrays, which of single numbers are slower than Python's own."""
    state = state + np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    return state ^ (state >> np.uint64(31))
