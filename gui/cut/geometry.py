"""Positions of stages and split points along a bar whose width is time, as fractions of its width."""

from __future__ import annotations

import itertools
from typing import NamedTuple

from engine.contract.cut import Cut, Segment
from engine.parallel.cut import Stage, stages


class Spot(NamedTuple):
    """Possible position of a cut."""

    split_point: str
    position: float
    segment: int


class Bar(NamedTuple):
    """Stages along the bar.

    Attributes:
        stages: The stages from the left.
        edges: Their edges, one more than stages, from 0 to 1.
        spots: Possible positions of cuts.
        seconds: Time of all stages for one microbatch.
    """

    stages: tuple[Stage, ...]
    edges: tuple[float, ...]
    spots: tuple[Spot, ...]
    seconds: float


def lay_out(cut: Cut) -> Bar:
    """Lay out `cut`. Raises ValueError as `stages` does.

    A stage is as wide as its time; its segments are as wide as their compute time.
    """
    cut_stages = stages(cut)
    total = sum(stage.seconds for stage in cut_stages)
    shares = [stage.seconds / total if total else 1 / len(cut_stages) for stage in cut_stages]
    edges = (0.0, *itertools.accumulate(shares[:-1]), 1.0)
    numbers = {segment.split_point: number for number, segment in enumerate(cut.segments[:-1])}
    ends = [-1, *(numbers[split_point] for split_point in cut.cuts), len(cut.segments) - 1]
    spots = []
    for number, stage in enumerate(cut_stages):
        inside = range(ends[number] + 1, ends[number + 1] + 1)
        weights = [_compute_seconds(cut, cut.segments[index], stage.group_rank) for index in inside]
        total_weight = sum(weights)
        done = 0.0
        for index, weight in zip(inside, weights, strict=True):
            done += weight / total_weight if total_weight else 1 / len(weights)
            position = edges[number] + (edges[number + 1] - edges[number]) * min(1.0, done)
            if index < len(cut.segments) - 1:
                spots.append(Spot(cut.segments[index].split_point, position, index))
    return Bar(cut_stages, edges, tuple(spots), total)


def _compute_seconds(cut: Cut, segment: Segment, group_rank: int) -> float:
    return (2 if cut.recomputed else 1) * segment.forward_s[group_rank] + segment.backward_s[group_rank]
