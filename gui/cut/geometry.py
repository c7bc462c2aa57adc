"""Where the stages of a cut, and the points at which it might stand, lie along a bar whose width is time.

Shares of the whole width, from 0 to 1.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from engine.contract.cut import Cut, Segment
from engine.parallel.cut import Stage, stages


class Spot(NamedTuple):
    """A point at which a cut may stand: its name, how far along, and the segment that ends there (from 0)."""

    split_point: str
    at: float
    segment: int


class Bar(NamedTuple):
    """`edges` are those of the stages: one more than there are stages, the first 0 and the last 1."""

    stages: tuple[Stage, ...]
    edges: tuple[float, ...]
    spots: tuple[Spot, ...]
    seconds: float
    """Of all stages together, for one microbatch."""


def lay_out(cut: Cut) -> Bar:
    """The bar of `cut`. Raises ValueError as `stages` does.

    A stage is as wide as its time; within it, segments are as wide as their computing.
    """
    held = stages(cut)
    total = sum(stage.seconds for stage in held)
    shares = [stage.seconds / total if total else 1 / len(held) for stage in held]
    edges = (0.0, *itertools.accumulate(shares[:-1]), 1.0)
    numbers = {segment.split_point: number for number, segment in enumerate(cut.segments[:-1])}
    ends = [-1, *(numbers[split_point] for split_point in cut.cuts), len(cut.segments) - 1]
    spots = []
    for number, stage in enumerate(held):
        inside = range(ends[number] + 1, ends[number + 1] + 1)
        weights = [_computing(cut, cut.segments[each], stage.group_rank) for each in inside]
        whole = sum(weights)
        done = 0.0
        for each, weight in zip(inside, weights, strict=True):
            done += weight / whole if whole else 1 / len(weights)
            at = edges[number] + (edges[number + 1] - edges[number]) * min(1.0, done)
            if each < len(cut.segments) - 1:
                spots.append(Spot(cut.segments[each].split_point, at, each))
    return Bar(held, edges, tuple(spots), total)


def _computing(cut: Cut, segment: Segment, group_rank: int) -> float:
    return (2 if cut.recomputed else 1) * segment.forward_s[group_rank] + segment.backward_s[group_rank]
