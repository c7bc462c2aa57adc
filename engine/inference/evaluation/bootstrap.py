"""Bootstrap confidence intervals for metrics (Efron 1979), computed by resampling with replacement.

All metrics and classes are recomputed from the same resamples, using sparse states of the samples. Two evaluations of
the same samples can therefore be compared resample by resample. scipy.stats.bootstrap supports neither.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import Interval
from engine.tasks.analysis import MetricValues

SEED = 20261124
"""Seed of the resamples for all evaluations.

For the same number of samples, the resample with a given number is always the same, so that evaluations can be
compared.
"""
MAX_RESAMPLES, MIN_RESAMPLES = 1000, 50
"""Number of resamples if there is enough time, and the smallest number with meaningful percentiles."""
MAX_RESAMPLING_S = 5.0
MIN_SAMPLES = 2
_PERCENTILES = (2.5, 97.5)

Ints = npt.NDArray[np.int64]


class ResampledValues(NamedTuple):
    """Metrics computed from each resample, with NaN for undefined values.

    There is an array [resamples] for each metric, and an array [resamples, classes] for each column of per-class
    values.
    """

    resamples: int
    measures: dict[str, npt.NDArray[np.float64]]
    per_class: dict[str, npt.NDArray[np.float64]]


def draw_resample_weights(number: int, samples: int) -> Ints:
    """Return how often each of `samples` samples is in a bootstrap resample, int64 [samples].

    The resample is drawn with a seed that depends on its `number`, so that it is the same in each evaluation.
    """
    drawn = np.random.default_rng((SEED, number)).integers(0, samples, samples)
    return np.bincount(drawn, minlength=samples)


def resample(
    samples: int, compute_values: Callable[[Ints], MetricValues], on_progress: Callable[[float], object]
) -> ResampledValues:
    """Compute metrics for bootstrap resamples, by calling `compute_values(weights)` for each.

    `weights` say how often a resample contains each of the `samples` samples. There are at most `MAX_RESAMPLES`
    resamples, and `MIN_RESAMPLES` of them are computed even if that takes longer than `MAX_RESAMPLING_S`. With fewer
    than `MIN_SAMPLES` samples, there are none. `on_progress` receives the completed fraction.
    """
    results: list[MetricValues] = []
    started = time.monotonic()
    while samples >= MIN_SAMPLES and len(results) < MAX_RESAMPLES:
        elapsed = time.monotonic() - started
        if len(results) >= MIN_RESAMPLES and elapsed >= MAX_RESAMPLING_S:
            break
        # The work ends at the maximum number of resamples, or at the maximum time with at least the minimum number.
        on_progress(max(len(results) / MAX_RESAMPLES, min(elapsed / MAX_RESAMPLING_S, len(results) / MIN_RESAMPLES)))
        results.append(compute_values(draw_resample_weights(len(results), samples)))
    measures = {
        name: np.array([_nan_if_none(result.measures.get(name)) for result in results])
        for name in _collect_keys(result.measures for result in results)
    }
    per_class = {
        title: np.array([[_nan_if_none(value) for value in result.per_class[title]] for result in results])
        for title in _collect_keys(result.per_class for result in results)
    }
    return ResampledValues(len(results), measures, per_class)


def _collect_keys(mappings: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys that occur in any of the mappings, in the order of their first occurrence."""
    return list(dict.fromkeys(key for mapping in mappings for key in mapping))


def _nan_if_none(value: float | None) -> float:
    return value if value is not None else math.nan


def find_interval(value: float, draws: npt.NDArray[np.float64] | None) -> Interval:
    """Return `value` with its 95% interval from the percentiles of `draws`, its values in the bootstrap resamples.

    There is no interval if too few of them are finite, or if `draws` is None.
    """
    finite = draws[np.isfinite(draws)] if draws is not None else np.empty(0)
    if len(finite) < MIN_RESAMPLES / 2:
        return Interval(value)
    low, high = np.percentile(finite, _PERCENTILES).tolist()
    return Interval(value, low, high)


def find_intervals(
    values: MetricValues, draws: ResampledValues
) -> tuple[dict[str, Interval], dict[str, tuple[Interval | None, ...]]]:
    """Return the bootstrap intervals of metrics, keyed by id, and of per-class values, keyed by column title.

    Metrics that are not finite are left out.
    """
    measures = {
        name: find_interval(value, draws.measures.get(name))
        for name, value in values.measures.items()
        if math.isfinite(value)
    }
    per_class = {}
    for title, class_values in values.per_class.items():
        all_draws = draws.per_class.get(title)  # [resamples, classes]
        intervals: list[Interval | None] = []
        for index, value in enumerate(class_values):
            class_draws = all_draws[:, index] if all_draws is not None else None
            intervals.append(find_interval(value, class_draws) if value is not None else None)
        per_class[title] = tuple(intervals)
    return measures, per_class
