"""Division of a model's segments among the ranks of a pipeline, so that the slowest rank is as fast as possible.

Segments are counted from 0; a stage holds the segments from `start` up to, but not including, `end`. The ends of all
stages except the last define a division. This is pure arithmetic with functions that return a stage's cost.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Cost = Callable[[int, int, int], float]
"""Cost of stage `stage` if it holds the segments from `start` up to `end`."""
Ends = tuple[int, ...]

ALL_TRIED = 2_000
"""Maximum number of divisions for an exhaustive search, if devices hold several stages."""
IMPROVED = 4
"""Number of best divisions on the grid that are improved further."""


class Question(NamedTuple):
    """Segments to divide, and their costs.

    Attributes:
        stage_ranks: Rank of each stage.
        seconds: Time of a stage.
        min_seconds: Lower bound of `seconds`, which grows with every segment that the stage holds.
        limits: Memory limit of each rank; infinity for none.
        phases: Costs in each phase, with the sum `seconds`, if all ranks execute the phases of a step one after
            another.
    """

    segments: int
    stage_ranks: tuple[int, ...]
    seconds: Cost
    min_seconds: Cost
    memory: Cost
    limits: tuple[float, ...]
    phases: tuple[Cost, ...] = ()


class Division(NamedTuple):
    """Division of segments; divisions are compared, and a smaller one is better.

    `excess` is the fraction by which the fullest rank exceeds its limit, or 0 if all fit; `seconds` is the time of the
    slowest rank, summed over the phases.
    """

    excess: float
    seconds: float
    slowest_stage: float
    total: float
    ends: Ends


def divide(asked: Question) -> Division:
    """Return the best division; its `excess` is positive if none was found that fits.

    With one stage per rank and one phase, it is the fastest division that fits, found by dynamic programming over the
    stages. Otherwise it is the best of all divisions if there are at most `ALL_TRIED` of them. If there are more, it is
    a local optimum under moves of a cut or a stage. The search starts from the divisions with the fastest slowest stage
    and with the smallest fullest stage, and from the best few on a coarse grid. There must be at least as many segments
    as stages.
    """
    stages = len(asked.stage_ranks)
    if len(set(asked.stage_ranks)) == stages and not asked.phases:
        fastest = _slowest_fastest(asked)
        return _division(asked, _fullest_least(asked) if fastest is None else fastest)
    grid = _grid(asked.segments, stages)
    best = heapq.nsmallest(IMPROVED, (_division(asked, ends) for ends in itertools.combinations(grid, stages - 1)))
    if len(grid) == asked.segments - 1:
        return best[0]
    others = [_division(asked, ends) for ends in (_slowest_fastest(asked), _fullest_least(asked)) if ends is not None]
    return min(_improved(asked, division) for division in [*best, *others])


def _grid(segments: int, stages: int) -> list[int]:
    """Return evenly spaced positions for the ends of stages, as many as result in at most `ALL_TRIED` divisions."""
    count = stages - 1
    while count < segments - 1 and math.comb(count + 1, stages - 1) <= ALL_TRIED:
        count += 1
    return [round(number * segments / (count + 1)) for number in range(1, count + 1)]


def _division(asked: Question, ends: Ends) -> Division:
    ranks = len(asked.limits)
    phases = asked.phases or (asked.seconds,)
    seconds = [[0.0] * ranks for _ in phases]
    memory = [0.0] * ranks
    slowest = 0.0
    for stage, (start, end) in enumerate(itertools.pairwise((0, *ends, asked.segments))):
        costs = [phase(stage, start, end) for phase in phases]
        slowest = max(slowest, sum(costs))
        rank = asked.stage_ranks[stage]
        for spent, cost in zip(seconds, costs, strict=True):
            spent[rank] += cost
        memory[rank] += asked.memory(stage, start, end)
    excess = max(held / limit - 1 for held, limit in zip(memory, asked.limits, strict=True))
    return Division(max(excess, 0.0), sum(map(max, seconds)), slowest, sum(map(sum, seconds)), ends)


def _slowest_fastest(asked: Question) -> Ends | None:
    """Return the division whose slowest stage is fastest among those that fit into memory; None if none fits."""

    def cost(stage: int, start: int, end: int) -> float:
        fits = asked.memory(stage, start, end) <= asked.limits[asked.stage_ranks[stage]]
        return asked.seconds(stage, start, end) if fits else math.inf

    return _minimize_worst(asked.segments, len(asked.stage_ranks), cost, asked.min_seconds)


def _fullest_least(asked: Question) -> Ends:
    """Return the division whose fullest stage uses least memory, relative to the limits if there are any."""
    finite = [limit for limit in asked.limits if math.isfinite(limit)]

    def cost(stage: int, start: int, end: int) -> float:
        limit = asked.limits[asked.stage_ranks[stage]]
        return asked.memory(stage, start, end) / (limit if finite else 1.0)

    ends = _minimize_worst(asked.segments, len(asked.stage_ranks), cost, lambda _stage, _start, _end: 0.0)
    assert ends is not None
    return ends


def _minimize_worst(segments: int, stages: int, cost: Cost, minimum: Cost) -> Ends | None:
    """Return the division whose most expensive stage costs least; None if all costs are infinite.

    Among equal divisions, it has a low total cost. `minimum` is a lower bound of `cost` that grows with the segments.
    Divisions whose stages cost little more than an equal part are searched first, since only few divisions are close to
    that.
    """
    even = sum(minimum(stage, 0, segments) for stage in range(stages)) / stages**2
    tries = (
        _minimize_worst_within(bound, segments, stages, cost, minimum) for bound in (1.1 * even, 2 * even, math.inf)
    )
    return next((ends for ends in tries if ends is not None), None)


def _minimize_worst_within(bound: float, segments: int, stages: int, cost: Cost, minimum: Cost) -> Ends | None:
    """Return the result of `_minimize_worst` among divisions without a stage that costs more than `bound`."""
    firsts = [segments]  # earliest first segment of each stage for which the later ones can hold the rest
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


def _improved(asked: Question, division: Division) -> Division:
    """Return `division` after all moves of a cut or of a stage that improve it."""
    while True:
        best = min((_division(asked, ends) for ends in _moves(division.ends, asked.segments)), default=division)
        if best[:-1] >= division[:-1]:
            return division
        division = best


def _moves(ends: Sequence[int], segments: int) -> Iterator[Ends]:
    """Yield every other split point for each cut between its neighbours, and for each two neighbouring cuts together."""
    fences = (0, *ends, segments)
    for together in (1, 2):
        for number in range(len(ends) + 1 - together):
            moved = ends[number : number + together]
            for shift in range(fences[number] + 1 - moved[0], fences[number + together + 1] - moved[-1]):
                if shift:
                    yield (*ends[:number], *(end + shift for end in moved), *ends[number + together :])
