"""Random numbers that depend on (seed, epoch, sample) alone, for whole batches at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


def draw(seed: int, epoch: int, samples: npt.NDArray[np.int64], stream: int) -> npt.NDArray[np.float64]:
    """One number in [0, 1) per sample; `stream` tells several draws for the same sample apart.

    SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) as a hash of the
    counters, so that neither threads nor the number of workers nor what was drawn before matter.
    """
    start = _mix(np.uint64(seed & _MASK))
    start = _mix(start ^ np.uint64(epoch & _MASK))
    start = _mix(start ^ np.uint64(stream & _MASK))
    bits = _mix(samples.astype(np.uint64) ^ start)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(value: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    state = np.atleast_1d(value) + np.uint64(_GOLDEN)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
