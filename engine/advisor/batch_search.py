"""The search for the largest batch size, by as few trials as may be.

Memory grows with the batch in a line, nearly: fragments of it, a library's choice of algorithms and what threads take
bend the line by some hundredths. So the line only says where to look. The answer lies between a size that fits and
one that does not, which are near to each other.
"""

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
"""A line through two sizes is extrapolated at most this many times the distance between them."""
ROOM = 0.98
"""The answer is at most this share of the least size that is known or predicted not to fit, while there are trials
left to try it: the memory that a run uses varies a little."""
NEAR = 0.97
"""The search ends when the largest size that fits is at least this share of the least one that does not. Times `ROOM`
it is 0.95: a size that fits although it was predicted not to leaves the answer that much below it."""
AIM = (NEAR + ROOM) / 2
"""The share of the size that would fill the memory at which the next trial is made; the answer if the line is right."""
BACK = 0.3
"""After a size that does not fit, the next trial goes back at least this share of the way to the largest that does."""
FASTER = 0.05
"""The knee of the throughput is the size beyond which no larger one is faster by more than this share."""
GAP = 4
"""The largest factor between the knee and the next smaller size tried, as far as the trials suffice."""


class Probe(NamedTuple):
    """What a trial of a batch size measured: `memory` holds what was used at most and what there is, in bytes, of each
    thing that may run out, by a name. `train_images` is the size of the training split, 0 if unknown.
    """

    images_per_second: float
    memory: Mapping[str, tuple[int, int]]
    train_images: int = 0


class Searched(NamedTuple):
    """What was tried, by batch size, None for what did not fit; `largest` is 0 where nothing did. `most` is the largest
    size that the search would have tried, `untried` the one for which there was no time, 0 where there was.
    """

    trials: dict[int, Probe | None]
    largest: int
    most: int = 0
    untried: int = 0

    @property
    def knee(self) -> int:
        """The smallest size that fitted for which no larger one is faster by more than `FASTER`; 0 where none
        fitted.
        """
        return _knee(self.trials)


class _Bracket(NamedTuple):
    """What is known of the limit: the memory of the sizes that fit below `least_failed`, smallest first, and that
    size, the least that does not fit. `full` is where the first thing is foreseen to run out. Both may be infinite.
    """

    fits: list[tuple[int, Mapping[str, tuple[int, int]]]]
    least_failed: float
    full: float

    @property
    def largest(self) -> int:
        return self.fits[-1][0] if self.fits else 0

    def with_room(self, unit: int) -> int:
        """The largest size that fits, or up to 1 - `ROOM` less, where there would be no room to spare."""
        foreseen = (self.full // unit + 1) * unit if self.full < math.inf else math.inf
        would_fail = min(self.least_failed, foreseen)
        if would_fail == math.inf:
            return self.largest
        return min(self.largest, int(ROOM * max(would_fail, self.largest) // unit) * unit) or self.largest


def search(
    probe: Callable[[int], Probe | None],
    *,
    unit: int,
    most: int,
    in_time: Callable[[int], bool] = lambda _size: True,
) -> Searched:
    """Finds the largest multiple of `unit` that fits, by `probe`, which is None of a size that does not.

    Tries no size above `most`, nor above the training split's, of which a larger batch could not be filled. Makes
    `MOST_TRIALS` trials at most, and ends before a size for which there is not enough time, according to `in_time`.
    """
    trials: dict[int, Probe | None] = {}
    most, untried = most // unit * unit, 0
    while len(trials) < MOST_TRIALS and (size := _next(trials, unit, most)):
        if not in_time(size):
            untried = size
            break
        trials[size] = tried = probe(size)
        if tried is not None and tried.train_images:
            most = min(most, max(size, tried.train_images // unit * unit))
    bracket = _bracket(trials)
    with_room = bracket.with_room(unit)
    largest = bracket.largest
    if len(trials) == MOST_TRIALS or trials.get(with_room) is not None:
        most_that_may_fit = min(bracket.least_failed - unit, max(most, largest))
        proven = (size for size, _ in bracket.fits if NEAR * ROOM * most_that_may_fit - unit < size <= with_room)
        largest = max(proven, default=largest)
    while largest and len(trials) < MOST_TRIALS and (between := _before_the_knee(trials, unit)) and in_time(between):
        trials[between] = probe(between)
    return Searched(dict(sorted(trials.items())), largest, most, untried)


def _bracket(trials: Mapping[int, Probe | None]) -> _Bracket:
    least_failed = min((size for size, tried in trials.items() if tried is None), default=math.inf)
    fits = [(size, tried.memory) for size, tried in sorted(trials.items()) if tried is not None and size < least_failed]
    return _Bracket(fits, least_failed, _full_at(fits))


def _next(trials: Mapping[int, Probe | None], unit: int, most: int) -> int:
    """The size to try next; 0 where there is nothing more to learn."""
    fits, least_failed, full = bracket = _bracket(trials)
    largest = bracket.largest
    if not trials:
        return min(unit * FIRST, most)
    if not fits:
        return int(least_failed / 2 // unit) * unit
    if largest >= min(most, NEAR * least_failed, least_failed - unit):
        with_room = bracket.with_room(unit)
        # Where it did not fit, others have to be tried.
        return with_room if with_room not in trials and len(trials) < MOST_TRIALS - 1 else 0
    aim = _above(fits, full) if least_failed == math.inf else _between(trials, bracket)
    return int(min(max(aim // unit * unit, largest + unit), most, least_failed - unit))


def _above(fits: list[tuple[int, Mapping[str, tuple[int, int]]]], full: float) -> float:
    """Where to look while all that was tried fits."""
    largest = fits[-1][0]
    if len(fits) == 1:
        return GROWTH * largest
    if full - largest > REACH * (largest - fits[-2][0]):
        return min(full / 2, GROWTH**2 * largest)
    return max(AIM * full, largest / NEAR)


def _between(trials: Mapping[int, Probe | None], bracket: _Bracket) -> float:
    """Where to look between the largest size that fits and the least that does not."""
    largest, failed = bracket.largest, bracket.least_failed
    if any(size > failed for size, tried in trials.items() if tried is not None):
        return AIM * failed  # a larger one fits, so that the limit is near
    if largest >= NEAR**2 * failed or bracket.full > 2 * failed:
        return math.sqrt(largest * failed)
    return min(max(AIM * bracket.full, largest / NEAR), AIM * failed, failed - BACK * (failed - largest))


def _full_at(fits: list[tuple[int, Mapping[str, tuple[int, int]]]]) -> float:
    """The size at which the first thing runs out, by a line through the last point and one of at most half its size,
    since what bends the line would decide the slope between near ones.
    """
    if len(fits) < 2:
        return math.inf
    large, after = fits[-1]
    small, before = next((fit for fit in reversed(fits) if 2 * fit[0] <= large), fits[0])
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
