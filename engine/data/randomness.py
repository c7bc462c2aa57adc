"""Random number streams of a run, given by the seed, the purpose, the epoch and the batch or sample. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

# Constants of SplitMix64 (see `mix`).
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 0xFFFFFFFFFFFFFFFF


class Purpose(IntEnum):
    """Purpose of a random stream.

    The values must never change, since they determine the numbers that a seed generates.
    """

    ORDER = 1
    """Order of the samples in an epoch."""
    CROP = 2
    """Crops and mirroring in the light augmentation."""
    MIX = 3
    """Mixup and CutMix."""
    TRANSFORM = 4
    """Random numbers for `transform` in a custom task."""
    POINTS = 5
    """Choice of a sample's points in a block of a point cloud."""
    ROTATE = 6
    """Rotation of the point cloud in a sample."""
    MODEL = 7
    """Random numbers that the model uses in training, for example for dropout."""
    AUGMENT = 8
    """Transforms in all augmentations except the light one."""
    PARTNERS = 9
    """Choice of the other images in a mosaic."""
    LOAD = 10
    """Global random numbers for `load` of a user-defined class in a process that loads samples."""
    SIZE = 11
    """Image size of a batch in multi-scale training."""


@dataclass(frozen=True)
class RandomStreams:
    """Random number streams for a run with `seed`, 0 to 2**31 - 1.

    Streams with different seeds or purposes neither coincide nor overlap, apart from collisions in 64 bits (32 bits for
    torch's CPU generators). Only initial weights don't use a stream. They are generated after
    `torch.manual_seed(seed)`, so that they are the same as in any other script.
    """

    seed: int

    def derive_seed(self, purpose: Purpose, *, epoch: int = 0, batch: int = 0, rank: int = 0) -> int:
        """Derive a 64-bit seed for a random number generator.

        It is a hash of the run's seed and all arguments (numpy's SeedSequence, after O'Neill 2015).
        """
        state = np.random.SeedSequence((self.seed, purpose, epoch, batch, rank)).generate_state(1, np.uint64)
        return int(state[0])

    def generator(self, purpose: Purpose, *, epoch: int, batch: int) -> np.random.Generator:
        """Create a random number generator for `purpose` in this batch of this epoch."""
        return np.random.default_rng(self.derive_seed(purpose, epoch=epoch, batch=batch))

    def draw(
        self, purpose: Purpose, epoch: int, samples: npt.NDArray[np.int64], count: int, *, draw_index: int = 0
    ) -> npt.NDArray[np.float64]:
        """Return `count` random numbers in [0, 1) for each sample in `samples` [n], as [count, n].

        The numbers of a sample depend only on the seed, the purpose, `draw_index`, the epoch and the index of the
        sample. They don't depend on the other samples, threads, the number of workers, or earlier calls. `draw_index`
        distinguishes several draws for one purpose. The numbers are hashes computed with SplitMix64 (Steele, Lea,
        Flood: Fast Splittable Pseudorandom Number Generators, 2014).
        """
        stream_seed = self.derive_seed(purpose, epoch=epoch, batch=draw_index)
        column_seeds = np.array([mix(stream_seed ^ column) for column in range(count)], np.uint64)
        bits = _mix_all(samples.astype(np.uint64) ^ column_seeds[:, None])
        return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def mix(state: int) -> int:
    """Return the next random number of a SplitMix64 generator with the given state. Both numbers have 64 bits."""
    state = (state + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * _FIRST) & _MASK
    state = ((state ^ (state >> 27)) * _SECOND) & _MASK
    return state ^ (state >> 31)


def _mix_all(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply `mix` to each element of an array. For a single number, `mix` is faster."""
    state = state + np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    return state ^ (state >> np.uint64(31))
