"""Random numbers that depend on (seed, epoch, sample) alone, for whole batches at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_MASK = 0xFFFFFFFFFFFFFFFF


def draw(seed: int, epoch: int, samples: npt.NDArray[np.int64], streams: int) -> npt.NDArray[np.float64]:
    """Numbers in [0, 1) as [streams, n]: as many per sample, independent of each other.

    SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) as a hash of the
    counters, so that neither threads nor the number of workers nor what was drawn before matter.
    """
    begun = _mix_one(_mix_one(seed & _MASK) ^ (epoch & _MASK))
    starts = np.array([_mix_one(begun ^ stream) for stream in range(streams)], np.uint64)
    bits = _mix(samples.astype(np.uint64) ^ starts[:, None])
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    state = state + np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    return state ^ (state >> np.uint64(31))


def _mix_one(state: int) -> int:
    """`_mix` of one number: Python's own are faster than arrays of one."""
    state = (state + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * _FIRST) & _MASK
    state = ((state ^ (state >> 27)) * _SECOND) & _MASK
    return state ^ (state >> 31)
