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

ALL_TRIED = 2_000
"""Maximum number of divisions that are all tried.

All are tried only if a rank holds several stages or a step has phases.
"""
IMPROVED = 4
"""Number of divisions on the coarse grid that the local search starts from."""


class SegmentCosts(NamedTuple):
    """Segments to divide into stages, with the costs of every possible stage.

    Attributes:
        segments: Number of segments.
        stage_ranks: Rank of each stage.
        seconds: Time of a stage in seconds.
        min_seconds: Lower bound of `seconds`, which grows with every segment added to the stage.
        memory: Memory of a stage in bytes.
        limits: Memory limit of each rank in bytes, or infinity.
        phases: Times of a stage in each phase of a step, which add up to `seconds`. It is empty unless all ranks
            complete one phase before the next begins.
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
    """Find the best division. If none fits into memory, the result has a positive `excess`.

    There must be at least as many segments as stages. With one stage per rank and no phases, dynamic programming over
    the stages finds the optimum. Otherwise, all divisions are tried if there are at most `ALL_TRIED`. If there are
    more, the result is a local optimum, which no move of a cut or of a stage improves. The local search starts from the
    best few divisions on a coarse grid, from the division that minimizes the time of the slowest stage, and from the
    one that minimizes the memory of the largest stage.
    """
    stages = len(costs.stage_ranks)
    if len(set(costs.stage_ranks)) == stages and not costs.phases:
        fastest = _slowest_fastest(costs)
        return _division(costs, _fullest_least(costs) if fastest is None else fastest)
    grid = _grid(costs.segments, stages)
    best = heapq.nsmallest(IMPROVED, (_division(costs, ends) for ends in itertools.combinations(grid, stages - 1)))
    if len(grid) == costs.segments - 1:
        return best[0]
    others = [_division(costs, ends) for ends in (_slowest_fastest(costs), _fullest_least(costs)) if ends is not None]
    return min(_improved(costs, division) for division in [*best, *others])


def _grid(segments: int, stages: int) -> list[int]:
    """Return evenly spaced ends for stages, as many as possible with at most `ALL_TRIED` divisions at these ends."""
    count = stages - 1
    while count < segments - 1 and math.comb(count + 1, stages - 1) <= ALL_TRIED:
        count += 1
    return [round(number * segments / (count + 1)) for number in range(1, count + 1)]


def _division(costs: SegmentCosts, ends: Ends) -> Division:
    ranks = len(costs.limits)
    phases = costs.phases or (costs.seconds,)
    seconds = [[0.0] * ranks for _ in phases]
    memory = [0.0] * ranks
    slowest = 0.0
    for stage, (start, end) in enumerate(itertools.pairwise((0, *ends, costs.segments))):
        spent = [phase(stage, start, end) for phase in phases]
        slowest = max(slowest, sum(spent))
        rank = costs.stage_ranks[stage]
        for phase_seconds, cost in zip(seconds, spent, strict=True):
            phase_seconds[rank] += cost
        memory[rank] += costs.memory(stage, start, end)
    excess = max(held / limit - 1 for held, limit in zip(memory, costs.limits, strict=True))
    return Division(max(excess, 0.0), sum(map(max, seconds)), slowest, sum(map(sum, seconds)), ends)


def _slowest_fastest(costs: SegmentCosts) -> Ends | None:
    """Return the division that minimizes the time of the slowest stage and fits into memory.

    Returns None if no division fits.
    """

    def cost(stage: int, start: int, end: int) -> float:
        fits = costs.memory(stage, start, end) <= costs.limits[costs.stage_ranks[stage]]
        return costs.seconds(stage, start, end) if fits else math.inf

    return _minimize_worst(costs.segments, len(costs.stage_ranks), cost, costs.min_seconds)


def _fullest_least(costs: SegmentCosts) -> Ends:
    """Return the division that minimizes the memory of the largest stage.

    If ranks have memory limits, the memory is relative to the limit of the stage's rank.
    """
    finite = [limit for limit in costs.limits if math.isfinite(limit)]

    def cost(stage: int, start: int, end: int) -> float:
        limit = costs.limits[costs.stage_ranks[stage]]
        return costs.memory(stage, start, end) / (limit if finite else 1.0)

    ends = _minimize_worst(costs.segments, len(costs.stage_ranks), cost, lambda _stage, _start, _end: 0.0)
    assert ends is not None
    return ends


def _minimize_worst(segments: int, stages: int, cost: Cost, minimum: Cost) -> Ends | None:
    """Return the division that minimizes the cost of its most expensive stage, or None if all costs are infinite.

    Among equal divisions, one with a low total cost is returned. `minimum` is a lower bound of `cost` that grows with
    every segment added to a stage. Divisions into nearly equal stages are searched first, because there are only few.
    """
    even = sum(minimum(stage, 0, segments) for stage in range(stages)) / stages**2
    tries = (
        _minimize_worst_within(bound, segments, stages, cost, minimum) for bound in (1.1 * even, 2 * even, math.inf)
    )
    return next((ends for ends in tries if ends is not None), None)


def _minimize_worst_within(bound: float, segments: int, stages: int, cost: Cost, minimum: Cost) -> Ends | None:
    """Run `_minimize_worst` only on divisions whose stages cost at most `bound` each. Returns None if there is none."""
    firsts = [segments]  # earliest start of each stage with which the later stages can hold the remaining segments
    for stage in range(stages - 1, 0, -1):
        end = firsts[0]
        short = (start for start in range(stage, end) if minimum(stage, start, end) <= bound)
        firsts.insert(0, next(short, end))
    worst = [math.inf] * (segments + 1)
    for end in range(firsts[0], segments + 1):
        if minimum(0, 0, end) > bound:
            break
        seconds = cost(0, 0, end)
        worst[end] = seconds if seconds <= bound else math.inf
    sums = list(worst)
    before: list[list[int]] = []
    for stage, (first, first_end) in enumerate(itertools.pairwise(firsts), start=1):
        new_worst, new_sums, chosen = [math.inf] * (segments + 1), [math.inf] * (segments + 1), [0] * (segments + 1)
        reached = max((cut for cut in range(first, segments) if worst[cut] < math.inf), default=0)
        for end in range(max(first_end, first + 1), segments + 1):
            for cut in range(min(end - 1, reached), first - 1, -1):
                if minimum(stage, cut, end) > min(new_worst[end], bound):
                    break
                if worst[cut] > new_worst[end] or math.isinf(worst[cut]):
                    continue
                seconds = cost(stage, cut, end)
                found = (max(worst[cut], seconds), sums[cut] + seconds)
                if seconds <= bound and found < (new_worst[end], new_sums[end]):
                    new_worst[end], new_sums[end] = found
                    chosen[end] = cut
        worst, sums = new_worst, new_sums
        before.append(chosen)
    if math.isinf(worst[segments]):
        return None
    ends = [segments]
    for chosen in reversed(before):
        ends.append(chosen[ends[-1]])
    return tuple(reversed(ends[1:]))


def _improved(costs: SegmentCosts, division: Division) -> Division:
    """Improve `division` repeatedly by the best move of a cut or of a stage, until no move improves it."""
    while True:
        best = min((_division(costs, ends) for ends in _moves(division.ends, costs.segments)), default=division)
        if best[:-1] >= division[:-1]:
            return division
        division = best


def _moves(ends: Sequence[int], segments: int) -> Iterator[Ends]:
    """Yield all divisions that result from a single move.

    A move shifts one cut between its neighbors, or two neighboring cuts by the same distance, which moves a stage.
    """
    fences = (0, *ends, segments)
    for together in (1, 2):
        for number in range(len(ends) + 1 - together):
            moved = ends[number : number + together]
            for shift in range(fences[number] + 1 - moved[0], fences[number + together + 1] - moved[-1]):
                if shift:
                    yield (*ends[:number], *(end + shift for end in moved), *ends[number + together :])
