"""Search for the largest batch size that fits in memory, with few trials.

Memory grows nearly linearly with the batch size. It deviates from a line by a few percent because of fragmentation,
threads and the algorithms that a library chooses. Therefore a line only predicts the next size to try. The result is a
size that has been tried and fits, close to one that does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

MAX_TRIALS = 8
FIRST_IMAGES = 4
"""Number of images per device in the first trial. The second trial has `GROWTH` times as many."""
GROWTH = 4
MAX_EXTRAPOLATION = 8
"""Maximum distance of an extrapolation from the larger of two sizes, as a multiple of their distance."""
ROOM = 0.98
"""Upper limit of the result, as a fraction of the smallest size that does not fit or is predicted not to fit.

It leaves some memory free, because the memory that a run uses varies a little. If trials are left, the result is tried.
"""
NEAR = 0.97
"""Minimum ratio of the largest size that fits to the smallest size that does not fit. At this ratio, the search ends.

Together with `ROOM`, the result may be up to 5% below the smallest size that does not fit (0.97 * 0.98 = 0.95).
"""
AIM = (NEAR + ROOM) / 2
"""Next size to try, as a fraction of the size that is predicted to fill the memory.

If the prediction is accurate, this size becomes the result.
"""
STEP_BACK = 0.3
"""Minimum distance of the next size from the smallest size that does not fit.

It is a fraction of the distance between this size and the largest size that fits.
"""
KNEE_GAIN = 0.05
"""Maximum relative gain in throughput that any size above the knee may have."""
KNEE_GAP = 4
"""Maximum ratio of the knee to the next smaller tried size. If it is larger, another size is tried between them."""


class Probe(NamedTuple):
    """Measurements from a trial with one batch size."""

    images_per_second: float
    memory: Mapping[str, tuple[int, int]]
    """Peak use and limit, in bytes, of each memory, by the name of the memory: "memory", "GPU 0"."""
    train_images: int = 0
    """Number of images in the training split, or 0 if it is unknown."""


class SearchResult(NamedTuple):
    """Result of the search for a batch size."""

    trials: dict[int, Probe | None]
    """Measurements by batch size, or None for sizes that did not fit."""
    largest: int
    """Largest size that fits, or 0 if none fits."""
    maximum: int = 0
    """Largest batch size that the search could try."""
    untried: int = 0
    """Size that was not tried because of the time limit, or 0 if there was none."""

    @property
    def knee(self) -> int:
        """Smallest size that fits and is nearly as fast as all larger sizes (see `KNEE_GAIN`), or 0 if none fits."""
        return _find_knee(self.trials)


class _FittingSize(NamedTuple):
    """Batch size that fits into memory, with its `Probe.memory`."""

    size: int
    memory: Mapping[str, tuple[int, int]]


class _Bracket(NamedTuple):
    """Bounds for the largest batch size that fits into memory."""

    fits: list[_FittingSize]
    """Sizes below `smallest_failed` that fit, in ascending order."""
    smallest_failed: float
    """Smallest tried size that does not fit, or infinity if all tried sizes fit."""
    full: float
    """Predicted batch size that fills the memory, or infinity without a prediction."""

    @property
    def largest(self) -> int:
        """Largest size that fits, or 0 if none does."""
        return self.fits[-1].size if self.fits else 0

    def largest_with_room(self, unit: int) -> int:
        """Return the largest size that fits and leaves room, a multiple of `unit`, or 0 if none fits.

        It is at most the fraction `ROOM` of the smallest size that fails or is predicted to fail, unless that is less
        than `unit`.
        """
        would_fail = self.smallest_failed
        if self.full < math.inf:
            would_fail = min(would_fail, (self.full // unit + 1) * unit)
        if would_fail == math.inf:
            return self.largest
        with_room = int(ROOM * max(would_fail, self.largest) // unit) * unit
        return min(self.largest, with_room) or self.largest  # a multiple of a large `unit` may be 0


def search(
    probe: Callable[[int], Probe | None],
    *,
    unit: int,
    maximum: int,
    has_time: Callable[[int], bool] = lambda _size: True,
) -> SearchResult:
    """Find the largest batch size that fits in memory and is a multiple of `unit`.

    Further trials then locate the smallest size that is nearly as fast as all larger ones (see `SearchResult.knee`).

    Args:
        probe: Runs a trial with a batch size, and returns its measurements, or None if the size does not fit.
        unit: Divisor of all sizes.
        maximum: Largest size to try. The number of training images is a limit, too.
        has_time: Returns False if a trial with a size would exceed the time limit. The search then ends.
    """
    trials: dict[int, Probe | None] = {}
    maximum, untried = maximum // unit * unit, 0
    # Find the largest size that fits.
    while len(trials) < MAX_TRIALS:
        size = _choose_next_size(trials, unit, maximum)
        if size == 0:
            break
        if not has_time(size):
            untried = size
            break
        trials[size] = measured = probe(size)
        if measured is not None and measured.train_images:
            maximum = min(maximum, max(size, measured.train_images // unit * unit))
    largest = _choose_largest(trials, unit, maximum)
    # Try sizes below the knee, to locate it more precisely.
    while largest and len(trials) < MAX_TRIALS:
        between = _choose_size_below_knee(trials, unit)
        if between == 0 or not has_time(between):
            break
        trials[between] = probe(between)
    return SearchResult(dict(sorted(trials.items())), largest, maximum, untried)


def _choose_largest(trials: Mapping[int, Probe | None], unit: int, maximum: int) -> int:
    """Return the largest tried size that fits, if possible one that leaves some memory free (see `ROOM`)."""
    bracket = _find_bracket(trials)
    with_room = bracket.largest_with_room(unit)
    is_search_complete = len(trials) == MAX_TRIALS or trials.get(with_room) is not None
    if not is_search_complete:  # it ended before a size that leaves room was tried
        return bracket.largest
    largest_possible = min(bracket.smallest_failed - unit, max(maximum, bracket.largest))
    # Of the sizes that fit, leave room, and are close enough to the largest possible one, take the largest. Since sizes
    # are multiples of `unit`, they may be less than one `unit` below the limit.
    min_size = NEAR * ROOM * largest_possible - unit
    close_enough = (fit.size for fit in bracket.fits if min_size < fit.size <= with_room)
    return max(close_enough, default=bracket.largest)


def _find_bracket(trials: Mapping[int, Probe | None]) -> _Bracket:
    """Derive the bounds for the largest size that fits from the trials, whose value is None for sizes that don't fit."""
    smallest_failed = min((size for size, measured in trials.items() if measured is None), default=math.inf)
    fits = [
        _FittingSize(size, measured.memory)
        for size, measured in sorted(trials.items())
        if measured is not None and size < smallest_failed
    ]
    return _Bracket(fits, smallest_failed, _predict_full_size(fits))


def _choose_next_size(trials: Mapping[int, Probe | None], unit: int, maximum: int) -> int:
    """Return the next batch size to try, a multiple of `unit` and at most `maximum`, or 0 if the search is complete.

    Starting from `FIRST_IMAGES`, sizes are halved until one fits. Then they grow until one does not fit or `maximum` is
    reached, and lie between the largest that fits and the smallest that does not until these are close (see `NEAR`).
    Finally, the result, which leaves some memory free (see `ROOM`), is tried, too.
    """
    if not trials:
        return min(unit * FIRST_IMAGES, maximum)
    bracket = _find_bracket(trials)
    largest, smallest_failed = bracket.largest, bracket.smallest_failed
    if not bracket.fits:
        return int(smallest_failed / 2 // unit) * unit
    # No size is left to try above the largest one that fits, or that one is close enough to the smallest that fails.
    is_bracket_narrow = largest >= min(maximum, NEAR * smallest_failed, smallest_failed - unit)
    if is_bracket_narrow:
        with_room = bracket.largest_with_room(unit)
        # Try the result, too (`with_room`), but not in the last trial, since others must follow if it does not fit.
        return with_room if with_room not in trials and len(trials) < MAX_TRIALS - 1 else 0
    aim = _choose_larger_size(bracket) if smallest_failed == math.inf else _choose_size_between(trials, bracket)
    return int(min(max(aim // unit * unit, largest + unit), maximum, smallest_failed - unit))


def _choose_larger_size(bracket: _Bracket) -> float:
    """Return a batch size to try that is larger than all tried sizes, which have all fitted."""
    if len(bracket.fits) == 1:
        return GROWTH * bracket.largest
    largest, full = bracket.largest, bracket.full
    # A prediction far beyond the tried sizes is not reliable, so approach it in steps.
    if full - largest > MAX_EXTRAPOLATION * (largest - bracket.fits[-2].size):
        return min(full / 2, GROWTH**2 * largest)
    return max(AIM * full, largest / NEAR)


def _choose_size_between(trials: Mapping[int, Probe | None], bracket: _Bracket) -> float:
    """Return a batch size to try between the largest one that fits and the smallest one that does not."""
    largest, failed = bracket.largest, bracket.smallest_failed
    if any(size > failed for size, measured in trials.items() if measured is not None):
        return AIM * failed  # a larger size fits, so the limit is near
    if largest >= NEAR**2 * failed or bracket.full > 2 * failed:  # the two are close, or the prediction is wrong
        return math.sqrt(largest * failed)
    return min(max(AIM * bracket.full, largest / NEAR), AIM * failed, failed - STEP_BACK * (failed - largest))


def _predict_full_size(fits: list[_FittingSize]) -> float:
    """Predict the batch size at which the first memory, such as that of a GPU, is full.

    `fits` has the sizes that fit in ascending order. The use of each memory is extrapolated by a line through two of
    them: the largest one, and the next one that is at most half of it. With closer sizes, small deviations would
    influence the slope too much. Returns infinity if fewer than two sizes fit or no memory use grows with the size.
    """
    if len(fits) < 2:
        return math.inf
    large = fits[-1]
    small = next((fit for fit in reversed(fits) if 2 * fit.size <= large.size), fits[0])
    full = math.inf
    for name, (used, limit) in large.memory.items():
        used_by_small, _limit = small.memory[name]
        slope = (used - used_by_small) / (large.size - small.size)
        if slope > 0:
            full = min(full, large.size + (limit - used) / slope)
    return full


def _find_knee(trials: Mapping[int, Probe | None]) -> int:
    """Return the smallest batch size that fits and is nearly as fast as all larger ones, or 0 if none fits."""
    speeds = {size: measured.images_per_second for size, measured in sorted(trials.items()) if measured is not None}
    for size, speed in speeds.items():
        if all(other <= speed * (1 + KNEE_GAIN) for larger, other in speeds.items() if larger > size):
            return size
    return 0


def _choose_size_below_knee(trials: Mapping[int, Probe | None], unit: int) -> int:
    """Return a size to try between the knee and the next smaller tried size, to locate the knee more precisely.

    Returns 0 if the two are already close, or if the size between them was already tried.
    """
    knee = _find_knee(trials)
    fitting = [size for size, measured in trials.items() if measured is not None]
    next_smaller = max((size for size in fitting if size < knee), default=knee)
    between = round(math.sqrt(next_smaller * knee) / unit) * unit
    is_gap_wide = knee > KNEE_GAP * next_smaller
    return between if is_gap_wide and between not in trials else 0
