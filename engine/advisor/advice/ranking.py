"""How fast each way is, between what bounds, and whether it is known which is the fastest."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.advisor.advice.candidates import Way
from engine.advisor.advice.measured import Measured
from engine.checks.findings.ranking import TIE
from engine.contract.advice import State
from engine.contract.devices import CPU

CONFIDENCE = 0.95
FLOOR = 0.01
"""The least half-width of an interval, as a share: processes differ by as much from one start to the next."""
DROPPED = 1.3
"""A way is dropped when it takes this many times as long as the fastest."""


class Speed(NamedTuple):
    """Images per second, between `low` and `high`."""

    median: float
    low: float
    high: float


@dataclass
class Tried:
    """What is known of a way. `memory` is the most used and the limit, of the device that is nearest to its limit;
    `wall_s` what its last trial took in all, `started_s` what of it its workers took to start, to prepare and to
    end.
    """

    way: Way
    state: State = "waiting"
    steps: list[float] = field(default_factory=list)
    measured: Measured | None = None
    memory: tuple[int, int] | None = None
    estimated: int | None = None
    wall_s: float = 0.0
    started_s: float = 0.0
    trials: int = 0
    why: str = ""

    @property
    def wait_s(self) -> float:
        """How much longer a step takes because of its data: on the CPU they are read by the cores that compute,
        elsewhere beside the step.
        """
        if self.measured is None or not self.measured.load_rate or not self.steps:
            return 0.0
        load = self.way.job.batch_size / self.measured.load_rate
        return load if CPU in self.way.job.devices else max(0.0, load - statistics.median(self.steps))

    @property
    def step_s(self) -> float:
        """A step's median with its wait for data; infinity where none was made."""
        return statistics.median(self.steps) + self.wait_s if self.steps else math.inf

    @property
    def speed(self) -> Speed:
        """0 where no step was made."""
        if not self.steps:
            return Speed(0.0, 0.0, 0.0)
        half = half_width(self.steps)
        images = self.way.job.batch_size
        return Speed(images / self.step_s, images / (self.step_s + half), images / max(1e-9, self.step_s - half))


def half_width(steps: Sequence[float]) -> float:
    """Half the interval of the median at `CONFIDENCE`, in seconds.

    A median's standard error is 1.253 times the mean's, of normally distributed values. Student's t by its first
    correction to the normal quantile (Abramowitz and Stegun 26.7.5). Single steps that were held up are cut off.
    """
    median = statistics.median(steps)
    spread = [each for each in steps if each < 2 * median]
    if len(spread) < 2:
        return median / 4
    z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    t = z + (z**3 + z) / 4 / (len(spread) - 1)
    return max(FLOOR * median, t * 1.253 * statistics.stdev(spread) / math.sqrt(len(spread)))


def ranked(tried: Sequence[Tried]) -> list[Tried]:
    """Fastest first; those that did not fit or failed last."""
    return sorted(tried, key=lambda each: (not each.steps, -each.speed.median))


def drop_slow(running: Sequence[Tried]) -> list[Tried]:
    """Those still in the running: the fastest, and those that are not slower. After a single trial slower means
    `DROPPED` times slower and surely so, since a process may be held up; after several either will do. The slower
    ones say so.
    """
    best, kept = ranked(running)[0], []
    for each in running:
        surely = each is not best and each.speed.high < best.speed.low
        slow = each.step_s > DROPPED * best.step_s
        if (slow and surely) or (each.trials > 1 and (slow or surely)):
            each.state = "slower"
            each.why = f"{100 * (1 - each.speed.median / best.speed.median):.0f} % slower than {best.way.name}."
        else:
            kept.append(each)
    return kept


def is_settled(running: Sequence[Tried]) -> bool:
    """Whether it is known which of those in the running is the fastest, or that they are equally fast."""
    best, *others = ranked(running)
    if not others:
        return True
    known = all(half_width(each.steps) <= TIE / 2 * each.step_s for each in running)
    return known and best.trials > 1 and all(each.trials > 1 for each in others)
