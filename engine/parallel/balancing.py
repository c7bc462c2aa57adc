"""Laying the segments of a model on the ranks of a pipeline, so that the slowest rank is as fast as can be.

Segments are counted from 0; a stage holds those from `begin` up to, not including, `end`. A division is told by
the ends of all stages but the last. Pure arithmetic over functions that tell what a stage would cost.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

Cost = Callable[[int, int, int], float]
"""The cost of stage `stage` if it holds the segments from `begin` up to `end`."""
Ends = tuple[int, ...]

ALL_TRIED = 2_000
"""The most divisions that are tried exhaustively where devices hold several stages."""
IMPROVED = 4
"""From how many of the best divisions on the grid cuts and stages are moved on."""


class Question(NamedTuple):
    """What is to be divided, and what it costs.

    `stage_ranks` tells the rank of each stage and `limits` what each rank may hold, infinity for no limit.
    `seconds` of a stage are at least its `least_seconds`, which grow with every segment that it holds. Where all ranks
    go through the `phases` of a step one after another, these tell what a stage costs in each, together `seconds`.
    """

    segments: int
    stage_ranks: tuple[int, ...]
    seconds: Cost
    least_seconds: Cost
    memory: Cost
    limits: tuple[float, ...]
    phases: tuple[Cost, ...] = ()


class Division(NamedTuple):
    """How well segments are divided; what compares less is better.

    `excess` is the share by which the fullest rank is over its limit, 0 where all fit; `seconds` are the slowest
    rank's, of every phase.
    """

    excess: float
    seconds: float
    slowest_stage: float
    total: float
    ends: Ends


def divide(asked: Question) -> Division:
    """The best division; one with `excess` where nothing was found that fits.

    With one stage at each rank and one phase it is the fastest of all that fit, by dynamic programming over the
    stages. With several it is the best of all where there are at most `ALL_TRIED`; else what moving a cut or a stage at
    a time, from the divisions with the fastest slowest stage and the smallest fullest stage and from the best few of
    those whose ends lie on a coarse grid, can no longer make better. It asks for as many segments as stages.
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
    """Where stages may end: as many evenly spaced segments as make at most `ALL_TRIED` divisions, but enough for
    one.
    """
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
    for stage, (begin, end) in enumerate(itertools.pairwise((0, *ends, asked.segments))):
        costs = [phase(stage, begin, end) for phase in phases]
        slowest = max(slowest, sum(costs))
        rank = asked.stage_ranks[stage]
        for spent, cost in zip(seconds, costs, strict=True):
            spent[rank] += cost
        memory[rank] += asked.memory(stage, begin, end)
    excess = max(held / limit - 1 for held, limit in zip(memory, asked.limits, strict=True))
    return Division(max(excess, 0.0), sum(map(max, seconds)), slowest, sum(map(sum, seconds)), ends)


def _slowest_fastest(asked: Question) -> Ends | None:
    """The division whose slowest stage is fastest among those where each stage fits by itself; None without one."""

    def cost(stage: int, begin: int, end: int) -> float:
        fits = asked.memory(stage, begin, end) <= asked.limits[asked.stage_ranks[stage]]
        return asked.seconds(stage, begin, end) if fits else math.inf

    return _least_worst(asked.segments, len(asked.stage_ranks), cost, asked.least_seconds)


def _fullest_least(asked: Question) -> Ends:
    """The division whose stages take least of their place's limit; where there are no limits, least at all."""
    finite = [limit for limit in asked.limits if math.isfinite(limit)]

    def cost(stage: int, begin: int, end: int) -> float:
        limit = asked.limits[asked.stage_ranks[stage]]
        return asked.memory(stage, begin, end) / (limit if finite else 1.0)

    ends = _least_worst(asked.segments, len(asked.stage_ranks), cost, lambda _stage, _begin, _end: 0.0)
    assert ends is not None
    return ends


def _least_worst(segments: int, stages: int, cost: Cost, least: Cost) -> Ends | None:
    """The division with the least largest cost, and of those one with little cost in all; None if all are infinite.

    `cost` is at least `least`, which grows with the segments held. It is sought first among divisions whose stages
    cost little more than an even share, since few come near to that.
    """
    even = sum(least(stage, 0, segments) for stage in range(stages)) / stages**2
    tries = (_least_worst_within(bound, segments, stages, cost, least) for bound in (1.1 * even, 2 * even, math.inf))
    return next((ends for ends in tries if ends is not None), None)


def _least_worst_within(bound: float, segments: int, stages: int, cost: Cost, least: Cost) -> Ends | None:
    """As `_least_worst`, of the divisions without a stage that costs more than `bound`."""
    firsts = [segments]  # with which segment each stage begins at the earliest, for those behind it to hold the rest
    for stage in range(stages - 1, 0, -1):
        end = firsts[0]
        short = (begin for begin in range(stage, end) if least(stage, begin, end) <= bound)
        firsts.insert(0, next(short, end))
    worst = [math.inf] * (segments + 1)
    for end in range(firsts[0], segments + 1):
        if least(0, 0, end) > bound:
            break
        own = cost(0, 0, end)
        worst[end] = own if own <= bound else math.inf
    sums = list(worst)
    before: list[list[int]] = []
    for stage, (first, first_end) in enumerate(itertools.pairwise(firsts), start=1):
        new_worst, new_sums, chosen = [math.inf] * (segments + 1), [math.inf] * (segments + 1), [0] * (segments + 1)
        reached = max((cut for cut in range(first, segments) if worst[cut] < math.inf), default=0)
        for end in range(max(first_end, first + 1), segments + 1):
            for cut in range(min(end - 1, reached), first - 1, -1):
                if least(stage, cut, end) > min(new_worst[end], bound):
                    break
                if worst[cut] > new_worst[end] or math.isinf(worst[cut]):
                    continue
                own = cost(stage, cut, end)
                found = (max(worst[cut], own), sums[cut] + own)
                if own <= bound and found < (new_worst[end], new_sums[end]):
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
    """`division` after all moves of a cut, or of a stage as it is, that make it better."""
    while True:
        best = min((_division(asked, ends) for ends in _moves(division.ends, asked.segments)), default=division)
        if best[:-1] >= division[:-1]:
            return division
        division = best


def _moves(ends: Sequence[int], segments: int) -> Iterator[Ends]:
    """Every other split point for each cut between its neighbours, and for each two neighbouring cuts together."""
    fences = (0, *ends, segments)
    for together in (1, 2):
        for number in range(len(ends) + 1 - together):
            moved = ends[number : number + together]
            for shift in range(fences[number] + 1 - moved[0], fences[number + together + 1] - moved[-1]):
                if shift:
                    yield (*ends[:number], *(end + shift for end in moved), *ends[number + together :])
