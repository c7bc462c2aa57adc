"""The search for the largest batch size, by as few trials as may be: memory grows with it in a line, nearly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

MOST_TRIALS = 8
FIRST = 4
"""Images per device in the first trial; the second has `GROWTH` times as many."""
GROWTH = 4
REACH = 8
"""A line through two sizes is believed so many times as far as they are apart."""
BELOW = 0.9
"""After a first failure where memory was foreseen to be full about there, the next size is so much of it."""
SHARE = 0.97
"""Of the batch size at which memory would be full, so much is aimed at: a few images of room are left to spare."""
NEAR = 0.955
"""A size that fits is the answer where it is at least so much of the least one that is known, or foreseen, not to."""
FASTER = 0.05
"""Where no larger size is faster by more than this share, the knee of the speed is reached."""
GAP = 4
"""Between the knee and the next smaller size that was tried, at most this factor is left, as far as the trials go."""


class Probe(NamedTuple):
    """What a trial of a batch size measured: `memory` holds what was used at most and what there is, in bytes, of each
    thing that may run out, by a name."""

    images_per_second: float
    memory: Mapping[str, tuple[int, int]]


class Searched(NamedTuple):
    """What was tried, by batch size, None for what did not fit; `largest` is 0 where nothing did."""

    trials: dict[int, Probe | None]
    largest: int

    @property
    def knee(self) -> int:
        """The smallest size that fitted for which no larger one is faster by more than `FASTER`; 0 where none fitted."""
        return _knee(self.trials)


def search(probe: Callable[[int], Probe | None], *, unit: int, most: int) -> Searched:
    """Finds the largest multiple of `unit`, up to `most`, that fits, by `probe`, which is None of a size that does not.

    Makes `MOST_TRIALS` trials at most.
    """
    trials: dict[int, Probe | None] = {}
    size = min(unit * FIRST, most // unit * unit)
    while size and size not in trials and len(trials) < MOST_TRIALS - 1:
        trials[size] = probe(size)
        size = _next(trials, unit, most // unit * unit)
    with_room = _with_room(trials, unit)
    if with_room and with_room not in trials:
        trials[with_room] = probe(with_room)
    fits = [size for size, tried in trials.items() if tried is not None]
    largest = max((size for size in fits if size <= with_room), default=max(fits, default=0))
    while largest and len(trials) < MOST_TRIALS and (between := _before_the_knee(trials, unit)):
        trials[between] = probe(between)
    return Searched(dict(sorted(trials.items())), largest)


def _with_room(trials: Mapping[int, Probe | None], unit: int) -> int:
    """The largest size that fits, or a little less where it all but fills the memory; 0 where none fits."""
    fits = [(size, tried.memory) for size, tried in sorted(trials.items()) if tried is not None]
    if not fits:
        return 0
    bound = min((size for size, tried in trials.items() if tried is None), default=math.inf)
    room = SHARE * min(bound, _full_at(fits[-2:]))
    return max(unit, int(min(fits[-1][0], room) // unit) * unit)


def _next(trials: Mapping[int, Probe | None], unit: int, most: int) -> int:
    """The size to try next; one that was tried where there is nothing more to learn."""
    fits = [(size, tried.memory) for size, tried in sorted(trials.items()) if tried is not None]
    fails = sorted(size for size, tried in trials.items() if tried is None)
    least_failed = min(fails, default=math.inf)
    if not fits:
        return fails[0] // 2 // unit * unit
    largest = fits[-1][0]
    full = _full_at(fits[-2:])
    if largest >= min(most, NEAR * min(least_failed, full)):
        return largest
    aim: float
    if len(fits) == 1:
        aim = GROWTH * largest
    elif full - largest > REACH * (largest - fits[-2][0]):
        aim = min(full / 2, GROWTH**2 * largest)
    else:
        aim = SHARE * full
    if aim >= least_failed:
        near = len(fails) == 1 and full < 2 * least_failed
        aim = BELOW * least_failed if near and BELOW * least_failed > largest else math.sqrt(largest * least_failed)
    return max(int(min(aim, most) // unit) * unit, largest)


def _full_at(points: list[tuple[int, Mapping[str, tuple[int, int]]]]) -> float:
    """The size at which the first thing runs out, by a line through the last two points."""
    if len(points) < 2:
        return math.inf
    (small, before), (large, after) = points
    found = math.inf
    for name, (used, limit) in after.items():
        slope = (used - before[name][0]) / (large - small)
        if slope > 0:
            found = min(found, large + (limit - used) / slope)
    return found


def _knee(trials: Mapping[int, Probe | None]) -> int:
    speeds = {size: tried.images_per_second for size, tried in sorted(trials.items()) if tried is not None}
    for size, speed in speeds.items():
        if all(other <= speed * (1 + FASTER) for larger, other in speeds.items() if larger > size):
            return size
    return 0


def _before_the_knee(trials: Mapping[int, Probe | None], unit: int) -> int:
    """A size to try between the knee and the next smaller one, where the gap is wide; 0 where it is not."""
    knee = _knee(trials)
    smaller, at = next(
        (pair for pair in itertools.pairwise(sorted(size for size, t in trials.items() if t)) if pair[1] == knee),
        (knee, knee),
    )
    between = round(math.sqrt(smaller * at) / unit) * unit
    return between if at > GAP * smaller and between not in trials else 0
