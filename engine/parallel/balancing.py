"""Division of a model's segments into pipeline stages that minimizes the time of the slowest rank.

Segments are numbered from 0. A stage consists of the segments from `start` up to, but not including, `end`. A division
is given by the ends of all stages except the last. The functions here are pure arithmetic on functions that return the
cost of a stage.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Cost = Callable[[int, int, int], float]
"""Function that returns the cost of a stage, given its number, `start` and `end`."""
Ends = tuple[int, ...]

MAX_EXHAUSTIVE = 2_000
"""Maximum number of divisions of a model into stages for trying all of them.

All are tried only if a rank holds several stages or a step has phases.
"""
LOCAL_SEARCHES = 4
"""Number of divisions on the coarse grid that the local search starts from."""


class SegmentCosts(NamedTuple):
    """Segments to divide into stages, with functions for the costs of every possible stage.

    The arguments of each function of type `Cost` are the number of the stage, its first segment, and the segment after
    its last one.

    Attributes:
        segments: Number of segments.
        stage_ranks: Rank of each stage.
        seconds: Function for the time of a stage in seconds.
        min_seconds: Function for a lower bound of `seconds`, which grows with every segment added to the stage.
        memory: Function for the memory of a stage in bytes.
        limits: Memory limit of each rank in bytes, or infinity.
        phases: Functions for the time of a stage in each phase of a step, which add up to `seconds`. It is empty unless
            all ranks complete one phase before the next begins.
    """

    segments: int
    stage_ranks: tuple[int, ...]
    seconds: Cost
    min_seconds: Cost
    memory: Cost
    limits: tuple[float, ...]
    phases: tuple[Cost, ...] = ()


class Division(NamedTuple):
    """Division of segments into stages, with its costs. Of two divisions, the better one compares as smaller.

    `excess` is the largest fraction by which a rank exceeds its memory limit, or 0 if all ranks have enough memory.
    `seconds` is the time of the slowest rank, summed over the phases.
    """

    excess: float
    seconds: float
    slowest_stage: float
    total: float
    ends: Ends


def divide(costs: SegmentCosts) -> Division:
    """Divide a model's segments into pipeline stages so that a step takes the least time.

    If no division fits into memory, the result has a positive `excess`.

    There must be at least as many segments as stages. With one stage per rank and no phases, dynamic programming over
    the stages finds the optimum. Otherwise, all divisions are tried if there are at most `MAX_EXHAUSTIVE`. If there are
    more, the result is a local optimum, which no move of a split point or of a stage improves. The local search starts
    from the best few divisions on a coarse grid, from the division that minimizes the time of the slowest stage, and
    from the one that minimizes the memory of the largest stage.
    """
    stages = len(costs.stage_ranks)
    if len(set(costs.stage_ranks)) == stages and not costs.phases:
        fastest = _minimize_slowest_stage(costs)
        return _compute_division(costs, _minimize_largest_stage(costs) if fastest is None else fastest)
    grid = _space_ends(costs.segments, stages)
    best = heapq.nsmallest(
        LOCAL_SEARCHES, (_compute_division(costs, ends) for ends in itertools.combinations(grid, stages - 1))
    )
    if len(grid) == costs.segments - 1:
        return best[0]
    others = [
        _compute_division(costs, ends)
        for ends in (_minimize_slowest_stage(costs), _minimize_largest_stage(costs))
        if ends is not None
    ]
    return min(_improve_locally(costs, division) for division in [*best, *others])


def _space_ends(segments: int, stages: int) -> list[int]:
    """Return evenly spaced ends at which a stage may end.

    There are as many as possible with at most `MAX_EXHAUSTIVE` divisions at these ends.
    """
    count = stages - 1
    while count < segments - 1 and math.comb(count + 1, stages - 1) <= MAX_EXHAUSTIVE:
        count += 1
    return [round(number * segments / (count + 1)) for number in range(1, count + 1)]


def _compute_division(costs: SegmentCosts, ends: Ends) -> Division:
    """Return the division at `ends` with its costs."""
    ranks = len(costs.limits)
    phases = costs.phases or (costs.seconds,)
    seconds = [[0.0] * ranks for _ in phases]  # by phase and rank
    memory = [0.0] * ranks
    slowest = 0.0
    for stage, (start, end) in enumerate(itertools.pairwise((0, *ends, costs.segments))):
        stage_seconds = [phase(stage, start, end) for phase in phases]
        slowest = max(slowest, sum(stage_seconds))
        rank = costs.stage_ranks[stage]
        for rank_seconds, phase_s in zip(seconds, stage_seconds, strict=True):
            rank_seconds[rank] += phase_s
        memory[rank] += costs.memory(stage, start, end)
    excess = max(used / limit - 1 for used, limit in zip(memory, costs.limits, strict=True))
    return Division(
        excess=max(excess, 0.0),
        seconds=sum(map(max, seconds)),
        slowest_stage=slowest,
        total=sum(map(sum, seconds)),
        ends=ends,
    )


def _minimize_slowest_stage(costs: SegmentCosts) -> Ends | None:
    """Return the division that minimizes the time of the slowest stage and fits into memory.

    Returns None if no division fits.
    """

    def cost(stage: int, start: int, end: int) -> float:
        fits = costs.memory(stage, start, end) <= costs.limits[costs.stage_ranks[stage]]
        return costs.seconds(stage, start, end) if fits else math.inf

    return _minimize_worst(costs.segments, len(costs.stage_ranks), cost, costs.min_seconds)


def _minimize_largest_stage(costs: SegmentCosts) -> Ends:
    """Return the division that minimizes the memory of the largest stage.

    If ranks have memory limits, the memory is relative to the limit of the stage's rank. On a rank without a limit, it
    counts as 0 then.
    """
    finite = [limit for limit in costs.limits if math.isfinite(limit)]

    def cost(stage: int, start: int, end: int) -> float:
        # A rank without a limit can't exceed it, so any stage may grow there to relieve the ranks with limits.
        limit = costs.limits[costs.stage_ranks[stage]]
        return costs.memory(stage, start, end) / (limit if finite else 1.0)

    # The last argument is a lower bound of `cost`: no cost is negative.
    ends = _minimize_worst(costs.segments, len(costs.stage_ranks), cost, lambda _stage, _start, _end: 0.0)
    assert ends is not None  # no cost is infinite
    return ends


def _minimize_worst(segments: int, stages: int, cost: Cost, minimum: Cost) -> Ends | None:
    """Return the division that minimizes the cost of its most expensive stage, or None if all costs are infinite.

    Among equal divisions, one with a low total cost is returned. `minimum` is a lower bound of `cost` that grows with
    every segment added to a stage. Divisions into nearly equal stages are searched first, because there are only few.
    """
    model_cost = sum(minimum(stage, 0, segments) for stage in range(stages)) / stages  # mean over the stages' ranks
    even = model_cost / stages
    for bound in (1.1 * even, 2 * even, math.inf):
        ends = _minimize_worst_within(bound, segments, stages, cost, minimum)
        if ends is not None:
            return ends
    return None


def _minimize_worst_within(bound: float, segments: int, stages: int, cost: Cost, minimum: Cost) -> Ends | None:
    """Run `_minimize_worst` only on divisions whose stages cost at most `bound` each. Returns None if there is none."""
    earliest_starts = _find_earliest_starts(bound, segments, stages, minimum)
    # Dynamic programming over the stages. For each number of segments in the stages until now, `worst` has the cost of
    # the most expensive stage and `sums` the total cost in the best division of these segments.
    worst = [math.inf] * (segments + 1)
    for end in range(earliest_starts[0], segments + 1):
        if minimum(0, 0, end) > bound:  # stage 0 from segment 0 to `end`
            break
        stage_cost = cost(0, 0, end)
        worst[end] = stage_cost if stage_cost <= bound else math.inf
    sums = list(worst)
    best_starts: list[list[int]] = []  # for each stage from 1 on: its start in the best division, by its end
    for stage, (first_start, first_end) in enumerate(itertools.pairwise(earliest_starts), start=1):
        new_worst, new_sums, starts = [math.inf] * (segments + 1), [math.inf] * (segments + 1), [0] * (segments + 1)
        last_start = max((start for start in range(first_start, segments) if worst[start] < math.inf), default=0)
        for end in range(max(first_end, first_start + 1), segments + 1):
            for start in range(min(end - 1, last_start), first_start - 1, -1):
                if minimum(stage, start, end) > min(new_worst[end], bound):
                    break  # earlier starts only make the stage larger
                if worst[start] > new_worst[end] or math.isinf(worst[start]):
                    continue
                stage_cost = cost(stage, start, end)
                costs = (max(worst[start], stage_cost), sums[start] + stage_cost)
                if stage_cost <= bound and costs < (new_worst[end], new_sums[end]):
                    new_worst[end], new_sums[end] = costs
                    starts[end] = start
        worst, sums = new_worst, new_sums
        best_starts.append(starts)
    if math.isinf(worst[segments]):
        return None
    ends = [segments]
    for starts in reversed(best_starts):
        ends.append(starts[ends[-1]])  # a stage ends where the next one starts
    return tuple(reversed(ends[1:]))


def _find_earliest_starts(bound: float, segments: int, stages: int, minimum: Cost) -> list[int]:
    """Return the earliest possible start of each stage from 1 on, followed by `segments`, the end of the last stage.

    If a stage started earlier, it and the later stages could not hold the remaining segments within `bound`. `minimum`
    is a lower bound for the cost of a stage (see `_minimize_worst`).
    """
    starts = [segments]
    for stage in range(stages - 1, 0, -1):
        end = starts[0]
        # Each of the `stage` earlier stages needs a segment. A stage that can't hold the segment before `end` starts at
        # `end` at the earliest.
        possible = (start for start in range(stage, end) if minimum(stage, start, end) <= bound)
        starts.insert(0, next(possible, end))
    return starts


def _improve_locally(costs: SegmentCosts, division: Division) -> Division:
    """Improve `division` repeatedly by the best move of a split point or of a stage, until no move improves it."""
    while True:
        best = min(
            (_compute_division(costs, ends) for ends in _iterate_moves(division.ends, costs.segments)), default=division
        )
        if best[:-1] >= division[:-1]:  # compares all costs, but not the ends
            return division
        division = best


def _iterate_moves(ends: Sequence[int], segments: int) -> Iterator[Ends]:
    """Yield all divisions that result from a single move.

    A move shifts one split point between its neighbors, or two neighbors by the same distance, which moves a stage.
    """
    boundaries = (0, *ends, segments)
    for count in (1, 2):  # number of split points that move together
        for first in range(len(ends) + 1 - count):
            moved = ends[first : first + count]
            lower, upper = boundaries[first], boundaries[first + count + 1]  # between which the moved points must stay
            for shift in range(lower + 1 - moved[0], upper - moved[-1]):
                if shift:
                    yield (*ends[:first], *(end + shift for end in moved), *ends[first + count :])
