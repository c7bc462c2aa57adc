"""Contenders in the ranking: setups with their measured speed and its confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.advisor.advice.setups import Setup
from engine.advisor.advice.trial_files import RankMeasurements
from engine.checks.findings.ranking import TIE
from engine.contract.advice import State
from engine.contract.devices import CPU
from engine.system.format import percent

CONFIDENCE = 0.95
MIN_HALF_WIDTH = 0.01
"""Minimum half-width of a confidence interval, relative to the median.

Restarting the same process causes as much variation.
"""
DROP_FACTOR = 1.3
"""Maximum step time of contenders that are kept, as a multiple of the fastest contender's."""


class Speed(NamedTuple):
    """Images per second with their confidence interval."""

    median: float
    low: float
    high: float


@dataclass
class Contender:
    """Setup (strategy, devices and settings for a job) with the results of its trials."""

    setup: Setup
    state: State = "waiting"
    steps: list[float] = field(default_factory=list)
    """Duration of each timed step, in seconds."""
    measured: RankMeasurements | None = None
    memory: tuple[int, int] | None = None
    """Peak use and limit, in bytes, of the device that came nearest to its limit. None if it wasn't measured."""
    estimated: int | None = None
    wall_s: float = 0.0
    """Duration of the last trial in seconds."""
    startup_s: float = 0.0
    """Part of `wall_s` that was spent on starting, preparing and ending its workers."""
    trials: int = 0
    why: str = ""

    @property
    def wait_s(self) -> float:
        """Time that a step waits for its data, in seconds.

        On a CPU, the same cores read the data and compute, so it is the full time for reading. On a GPU, data is read
        during the previous step, so only the time by which reading exceeds the step counts.
        """
        if self.measured is None or not self.measured.load_rate or not self.steps:
            return 0.0
        load_s = self.setup.job.training.batch_size / self.measured.load_rate
        if CPU in self.setup.job.parallel.devices:
            return load_s
        return max(0.0, load_s - statistics.median(self.steps))

    @property
    def step_s(self) -> float:
        """Median duration of a step in seconds, including the wait for data, or infinity if no step was timed."""
        return statistics.median(self.steps) + self.wait_s if self.steps else math.inf

    @property
    def speed(self) -> Speed:
        """Speed with its confidence interval, or zeros if no step was timed."""
        if not self.steps:
            return Speed(0.0, 0.0, 0.0)
        half_s = half_width(self.steps)
        images = self.setup.job.training.batch_size
        return Speed(
            median=images / self.step_s,
            low=images / (self.step_s + half_s),
            high=images / max(1e-9, self.step_s - half_s),
        )


def half_width(steps: Sequence[float]) -> float:
    """Return half the width of the confidence interval, at the level `CONFIDENCE`, for the median step duration.

    `steps` are the durations of steps in seconds, and so is the result. Outliers above twice the median are ignored.
    For normally distributed values, the standard error of a median is 1.253 times that of the mean. Student's t is
    approximated by the first correction to the normal quantile (Abramowitz and Stegun 26.7.5).
    """
    median = statistics.median(steps)
    typical = [each for each in steps if each < 2 * median]
    if len(typical) < 2:
        return median / 4  # a wide guess, since one duration shows no spread
    normal_quantile = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    t_quantile = normal_quantile + (normal_quantile**3 + normal_quantile) / 4 / (len(typical) - 1)
    standard_error = 1.253 * statistics.stdev(typical) / math.sqrt(len(typical))
    return max(MIN_HALF_WIDTH * median, t_quantile * standard_error)


def rank(contenders: Sequence[Contender]) -> list[Contender]:
    """Return the contenders by speed, fastest first. Contenders without timed steps come last."""
    return sorted(contenders, key=lambda each: -each.speed.median)


def drop_slow(running: Sequence[Contender]) -> list[Contender]:
    """Mark those of the contenders `running` that are clearly slower than the fastest one, and return the others.

    After a single trial, which may have been delayed, a contender is dropped only if it is slower by the factor
    `DROP_FACTOR` and also outside the confidence interval of the fastest one. After several trials, either condition is
    enough.
    """
    best, remaining = rank(running)[0], []
    for each in running:
        is_outside = each is not best and each.speed.high < best.speed.low
        is_slow = each.step_s > DROP_FACTOR * best.step_s
        is_dropped = (is_slow or is_outside) if each.trials > 1 else (is_slow and is_outside)
        if is_dropped:
            each.state = "slower"
            each.why = f"{percent(1 - each.speed.median / best.speed.median)} slower than {best.setup.name}."
        else:
            remaining.append(each)
    return remaining


def is_ranking_certain(running: Sequence[Contender]) -> bool:
    """Return True if further trials of the contenders `running` can't change which ones are the fastest.

    This is the case if there is a single one, or if all were tried repeatedly and have narrow confidence intervals.
    """
    if len(running) == 1:
        return True
    is_precise = all(half_width(each.steps) <= TIE / 2 * each.step_s for each in running)
    return is_precise and all(each.trials > 1 for each in running)
