"""Intervals of measures by the bootstrap (Efron 1979): they are computed again of resamples, as many samples drawn
with replacement.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import Interval
from engine.tasks.analysis import Values

SEED = 20261124
"""The nth resample of as many samples is the same in all evaluations, so that two of them can be compared pair by
pair."""
MOST, LEAST = 1000, 50
"""Resamples: as many as there is time for, but at least so many that percentiles mean something."""
BUDGET_S = 5.0
LEAST_SAMPLES = 2
_ENDS = (2.5, 97.5)

Ints = npt.NDArray[np.int64]


class Resampled(NamedTuple):
    """What `drawn` resamples give: of each measure a value for each, [drawn], and of each title [drawn, classes]; NaN
    for none.
    """

    drawn: int
    measures: dict[str, npt.NDArray[np.float64]]
    per_class: dict[str, npt.NDArray[np.float64]]


def weights_of(number: int, samples: int) -> Ints:
    """How often each sample is drawn in the resample of that number, [samples]."""
    drawn = np.random.default_rng((SEED, number)).integers(0, samples, samples)
    return np.bincount(drawn, minlength=samples)


def resampled(samples: int, values: Callable[[Ints], Values], progressed: Callable[[float], object]) -> Resampled:
    """What `values(weights)` gives for resamples, as many as there is time for. `progressed` is told the share that
    is done.
    """
    found: list[Values] = []
    begun = time.monotonic()
    while samples >= LEAST_SAMPLES and len(found) < MOST:
        spent = time.monotonic() - begun
        if len(found) >= LEAST and spent >= BUDGET_S:
            break
        progressed(max(len(found) / MOST, min(spent / BUDGET_S, len(found) / LEAST)))
        found.append(values(weights_of(len(found), samples)))
    measures = {name: np.array([_number(each.measures.get(name)) for each in found]) for name in _names(found, 0)}
    per_class = {
        title: np.array([[_number(value) for value in each.per_class[title]] for each in found])
        for title in _names(found, 1)
    }
    return Resampled(len(found), measures, per_class)


def _names(found: Sequence[Values], kind: int) -> list[str]:
    return list(dict.fromkeys(name for each in found for name in each[kind]))


def _number(value: float | None) -> float:
    return value if value is not None else math.nan


def interval(value: float, draws: npt.NDArray[np.float64] | None) -> Interval:
    """`value` with the 95 % percentile interval of `draws`; without one where fewer than half of them are numbers."""
    draws = draws[np.isfinite(draws)] if draws is not None else np.empty(0)
    if len(draws) < LEAST / 2:
        return Interval(value)
    low, high = np.percentile(draws, _ENDS).tolist()
    return Interval(value, low, high)


def intervals_of(
    values: Values, draws: Resampled
) -> tuple[dict[str, Interval], dict[str, tuple[Interval | None, ...]]]:
    """The intervals of measures by id, and of those of each class by title. What is no number is left out."""
    measures = {
        name: interval(value, draws.measures.get(name))
        for name, value in values.measures.items()
        if math.isfinite(value)
    }
    per_class = {}
    for title, shares in values.per_class.items():
        columns = draws.per_class.get(title)
        per_class[title] = tuple(
            None if share is None else interval(share, columns[:, index] if columns is not None else None)
            for index, share in enumerate(shares)
        )
    return measures, per_class
