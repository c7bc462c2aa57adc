"""Bootstrap confidence intervals for metrics (Efron 1979), computed by resampling with replacement.

All metrics and classes are recomputed from the same resamples, using sparse states of the samples. Two evaluations of
the same samples can therefore be compared resample by resample. scipy.stats.bootstrap supports neither.
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
"""Seed of the resamples for all evaluations.

For the same number of samples, the resample with a given number is always the same, so that evaluations can be
compared.
"""
MAX_RESAMPLES, MIN_RESAMPLES = 1000, 50
"""Number of resamples if there is enough time, and the smallest number with meaningful percentiles."""
BUDGET_S = 5.0
MIN_SAMPLES = 2
_PERCENTILES = (2.5, 97.5)

Ints = npt.NDArray[np.int64]


class Resampled(NamedTuple):
    """Metrics computed from each resample, with NaN for undefined values.

    There is an array [resamples] for each metric, and an array [resamples, classes] for each column of per-class
    values.
    """

    resamples: int
    measures: dict[str, npt.NDArray[np.float64]]
    per_class: dict[str, npt.NDArray[np.float64]]


def weights_of(number: int, samples: int) -> Ints:
    """Return how often resample `number` contains each sample, [samples]."""
    drawn = np.random.default_rng((SEED, number)).integers(0, samples, samples)
    return np.bincount(drawn, minlength=samples)


def resample(samples: int, values: Callable[[Ints], Values], on_progress: Callable[[float], object]) -> Resampled:
    """Compute `values(weights)` for as many resamples as time allows.

    `weights` say how often a resample contains each of the `samples` samples. `on_progress` receives the completed
    fraction.
    """
    results: list[Values] = []
    started = time.monotonic()
    while samples >= MIN_SAMPLES and len(results) < MAX_RESAMPLES:
        elapsed = time.monotonic() - started
        if len(results) >= MIN_RESAMPLES and elapsed >= BUDGET_S:
            break
        on_progress(max(len(results) / MAX_RESAMPLES, min(elapsed / BUDGET_S, len(results) / MIN_RESAMPLES)))
        results.append(values(weights_of(len(results), samples)))
    measures = {
        name: np.array([_nan_if_none(each.measures.get(name)) for each in results]) for name in _names(results, 0)
    }
    per_class = {
        title: np.array([[_nan_if_none(value) for value in each.per_class[title]] for each in results])
        for title in _names(results, 1)
    }
    return Resampled(len(results), measures, per_class)


def _names(results: Sequence[Values], kind: int) -> list[str]:
    return list(dict.fromkeys(name for each in results for name in each[kind]))


def _nan_if_none(value: float | None) -> float:
    return value if value is not None else math.nan


def interval(value: float, draws: npt.NDArray[np.float64] | None) -> Interval:
    """Return `value` with its 95% percentile interval.

    `draws` are the values from the resamples. If too few of them are finite, or if it is None, there is no interval.
    """
    draws = draws[np.isfinite(draws)] if draws is not None else np.empty(0)
    if len(draws) < MIN_RESAMPLES / 2:
        return Interval(value)
    low, high = np.percentile(draws, _PERCENTILES).tolist()
    return Interval(value, low, high)


def intervals_of(
    values: Values, draws: Resampled
) -> tuple[dict[str, Interval], dict[str, tuple[Interval | None, ...]]]:
    """Return the intervals of metrics, keyed by id, and those of per-class values, keyed by column title.

    Metrics that are not finite are left out.
    """
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
