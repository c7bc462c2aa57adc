"""The random streams of a run: each is identified by the seed, its purpose, and when and where it is used.

Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 0xFFFFFFFFFFFFFFFF


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


@dataclass(frozen=True)
class RandomStreams:
    """The streams of a run with `seed`, 0 to 2**31 - 1.

    No two streams of any seeds are equal or parts of each other, within 64 bits; torch's generators on the CPU use 32
    of them. Fresh weights alone are drawn from the seed as it is, so that they are those
    of `torch.manual_seed(seed)` in any script.
    """

    seed: int

    def number(self, purpose: Purpose, *, epoch: int = 0, batch: int = 0, rank: int = 0) -> int:
        """The 64-bit seed of a generator: numpy's hash (SeedSequence, after O'Neill 2015) of all of them."""
        words = np.random.SeedSequence((self.seed, purpose, epoch, batch, rank)).generate_state(1, np.uint64)
        return int(words[0])

    def generator(self, purpose: Purpose, *, epoch: int, batch: int) -> np.random.Generator:
        return np.random.default_rng(self.number(purpose, epoch=epoch, batch=batch))

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
