"""Cut of a model into pipeline stages, with the costs of the segments between split points, and the best cuts.

This is pure data and arithmetic, so that the window can show and move a cut without torch.
`engine.strategies.pipelining.stage_costs` measures the costs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import msgspec

from engine.contract.cut import Cut
from engine.contract.devices import is_gpu
from engine.parallel.balancing import SegmentCosts, divide


class CannotCut(ValueError):  # noqa: N818 - describes the model
    """Raised when a model can't be cut into stages. The message is a clause with the reason.

    `field` is the job field that causes the problem, and `remedy` is a sentence with advice.
    """

    def __init__(
        self, reason: str, *, field: str = "strategy", remedy: str = "Choose another model or strategy."
    ) -> None:
        super().__init__(reason)
        self.field = field
        self.remedy = remedy


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Segments and costs of one stage. Times are those of the forward and backward pass of one microbatch."""

    group_rank: int
    device: str
    first_module: str
    last_module: str
    layers: int
    parameters: int
    seconds: float
    share: float
    """Time of this stage as a fraction of the total time of all stages."""
    memory_bytes: int
    """Memory for the state of the stage's parameters, and for the activations of all microbatches in flight."""
    over_memory: bool
    sent_bytes: int
    """Size of the activations that are sent to the next stage for each microbatch, in bytes.

    Their gradients, which the next stage returns, have the same size. It is 0 for the last stage.
    """


class _StageCosts:
    """Costs of a stage that consists of any range of segments, computed from running sums."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut
        recomputations = 1 if cut.recomputed else 0
        ranks = range(len(cut.devices))
        # Times by rank, since devices may differ.
        self._forward = [_running_sums(each.forward_s[rank] for each in cut.segments) for rank in ranks]
        self._backward = [
            _running_sums(recomputations * each.forward_s[rank] + each.backward_s[rank] for each in cut.segments)
            for rank in ranks
        ]
        self._activations = _running_sums(each.activation_bytes for each in cut.segments)
        self._parameters = _running_sums(each.parameters for each in cut.segments)
        self._layers = _running_sums(each.layers for each in cut.segments)

    def computing_s(self, stage: int, start: int, end: int) -> float:
        """Return the seconds for both passes of a stage with the segments from `start` up to `end`, without transfers."""
        rank = self.cut.stage_ranks[stage]
        return sum(running[rank][end] - running[rank][start] for running in (self._forward, self._backward))

    def forward_s(self, stage: int, start: int, end: int) -> float:
        """Return the seconds for a stage's forward pass, with the transfer of activations from the previous stage."""
        forward = self._forward[self.cut.stage_ranks[stage]]
        return forward[end] - forward[start] + self._received_bytes(stage, start) * self.cut.seconds_per_byte

    def backward_s(self, stage: int, start: int, end: int) -> float:
        """Return the seconds for the backward pass of a stage, with the transfer of gradients from the next stage."""
        backward = self._backward[self.cut.stage_ranks[stage]]
        gradient_bytes = self._received_bytes(stage + 1, end) if end < self.segments else 0
        return backward[end] - backward[start] + gradient_bytes * self.cut.seconds_per_byte

    def seconds(self, stage: int, start: int, end: int) -> float:
        return self.forward_s(stage, start, end) + self.backward_s(stage, start, end)

    def memory_bytes(self, stage: int, start: int, end: int) -> int:
        """Return the memory for the state of a stage's parameters and for its microbatches in flight, in bytes."""
        state = self.parameters(start, end) * self.cut.state_bytes
        activations = self._activations[end] - self._activations[start]
        inputs = self.cut.segments[start - 1].output_bytes if start else 0
        in_flight = self.cut.in_flight[stage]
        if self.cut.recomputed:  # only the microbatch in the backward pass has activations
            return int(state + inputs * in_flight + activations)
        return int(state + (inputs + activations) * in_flight)

    def parameters(self, start: int, end: int) -> int:
        return int(self._parameters[end] - self._parameters[start])

    def layers(self, start: int, end: int) -> int:
        return int(self._layers[end] - self._layers[start])

    @property
    def segments(self) -> int:
        return len(self.cut.segments)

    def _received_bytes(self, stage: int, start: int) -> int:
        """Return the number of bytes that `stage` receives for a microbatch if its first segment is `start`.

        It is 0 if the previous stage is on the same rank.
        """
        ranks = self.cut.stage_ranks
        has_previous = start > 0 and 0 < stage < len(ranks)
        if not has_previous or ranks[stage - 1] == ranks[stage]:
            return 0
        return self.cut.segments[start - 1].output_bytes


def _running_sums(values: Iterable[float]) -> list[float]:
    """Return the running sums of `values`, with a 0 before the first value."""
    return list(itertools.accumulate(values, initial=0.0))


def compute_stages(cut: Cut) -> tuple[Stage, ...]:
    """Return the segments and costs of each stage of `cut`, in the order of computation.

    Raises ValueError if the cuts are not split points of the model, are out of order, or do not match the number of
    stages.
    """
    costs = _StageCosts(cut)
    limits = _memory_limits(cut)
    spans = list(itertools.pairwise((0, *_ends(cut), costs.segments)))
    seconds = [costs.seconds(stage, *span) for stage, span in enumerate(spans)]
    memory = [costs.memory_bytes(stage, *span) for stage, span in enumerate(spans)]
    used_bytes = [0] * len(cut.devices)
    for rank, needed in zip(cut.stage_ranks, memory, strict=True):
        used_bytes[rank] += needed
    return tuple(
        Stage(
            group_rank=rank,
            device=cut.devices[rank],
            first_module=cut.segments[start].first_module or cut.segments[start].module,
            last_module=cut.segments[end - 1].module,
            layers=costs.layers(start, end),
            parameters=costs.parameters(start, end),
            seconds=seconds[stage],
            share=seconds[stage] / sum(seconds) if sum(seconds) else 1 / len(spans),
            memory_bytes=memory[stage],
            over_memory=used_bytes[rank] > limits[rank],
            sent_bytes=cut.segments[end - 1].output_bytes if end < costs.segments else 0,
        )
        for stage, ((start, end), rank) in enumerate(zip(spans, cut.stage_ranks, strict=True))
    )


def best_cuts(cut: Cut) -> tuple[str, ...]:
    """Find the split points that minimize the time of the slowest rank and fit into the memory of every device.

    If the cut is `phased`, the time is that of the slowest forward passes plus that of the slowest backward passes. The
    current cuts of `cut` are ignored. The docstring of `balancing.divide` explains when the result is the optimum.
    Raises CannotCut if there are too few split points. If no cut fits into memory, the error names the memory that is
    needed.
    """
    needed, points = len(cut.stage_ranks) - 1, len(cut.segments) - 1
    if points < needed:
        has = "1 position" if points == 1 else f"{points} positions"
        raise CannotCut(
            f"it can be cut at {has}, and {needed + 1} stages need {needed}",
            field="devices",
            remedy="Choose fewer devices, or another model or strategy.",
        )
    costs = _StageCosts(cut)
    division = divide(
        SegmentCosts(
            segments=len(cut.segments),
            stage_ranks=cut.stage_ranks,
            seconds=costs.seconds,
            min_seconds=costs.computing_s,
            memory=costs.memory_bytes,
            limits=_memory_limits(cut),
            phases=(costs.forward_s, costs.backward_s) if cut.phased else (),
        )
    )
    cuts = tuple(cut.segments[end - 1].split_point for end in division.ends)
    if division.excess:
        raise _too_large(msgspec.structs.replace(cut, cuts=cuts))
    return cuts


def choose_cuts(cut: Cut) -> Cut:
    """Return a copy of `cut` with the best cuts, marked as `chosen`. Raises CannotCut."""
    return msgspec.structs.replace(cut, cuts=best_cuts(cut), chosen=True)


def move_cut(cut: Cut, number: int, split_point: str) -> Cut:
    """Return a copy of `cut` with the cut `number` (from 0) moved to `split_point`, not marked as `chosen`.

    Raises ValueError if the split point is not one of `reachable_points`.
    """
    if split_point not in reachable_points(cut, number):
        raise ValueError(f"cut {number} can't be at {split_point}")
    cuts = (*cut.cuts[:number], split_point, *cut.cuts[number + 1 :])
    return msgspec.structs.replace(cut, cuts=cuts, chosen=False)


def reachable_points(cut: Cut, number: int) -> tuple[str, ...]:
    """Return all split points between the neighbors of cut `number` (from 0), in order.

    The cut can be moved to each of them.
    """
    boundaries = (0, *_ends(cut), len(cut.segments))
    between = cut.segments[boundaries[number] : boundaries[number + 2] - 1]
    return tuple(segment.split_point for segment in between)


def _ends(cut: Cut) -> tuple[int, ...]:
    """Return the number of segments before each of the cuts. Raises ValueError if the cuts are impossible."""
    numbers = {segment.split_point: number for number, segment in enumerate(cut.segments[:-1], start=1)}
    unknown = [name for name in cut.cuts if name not in numbers]
    if unknown:
        raise ValueError(f"the model can't be cut at {', '.join(unknown)}")
    ends = tuple(numbers[name] for name in cut.cuts)
    if len(ends) != len(cut.stage_ranks) - 1:
        raise ValueError(f"{len(cut.stage_ranks)} stages need {len(cut.stage_ranks) - 1} cuts, not {len(ends)}")
    if any(after <= before for before, after in itertools.pairwise(ends)):
        raise ValueError("the cuts are not in the order of the computation")
    return ends


def _memory_limits(cut: Cut) -> tuple[float, ...]:
    """Return the memory limit of each rank in bytes: at least 1, and infinity if it is unknown."""
    return tuple(math.inf if limit is None else max(limit, 1) for limit in cut.memory_bytes)


def _too_large(cut: Cut) -> CannotCut:
    """Create the error for a model that doesn't fit into memory with its best cut, `cut`."""
    needed = [0] * len(cut.devices)
    for stage in compute_stages(cut):
        needed[stage.group_rank] += stage.memory_bytes
    limits = _memory_limits(cut)
    rank = max(range(len(needed)), key=lambda each: needed[each] / limits[each])
    name = cut.devices[rank] if is_gpu(cut.devices[rank]) else f"CPU worker {rank}"
    remedies = "Use more devices, a smaller batch size or smaller images"
    if not cut.recomputed:
        remedies += ", or turn on activation checkpointing"
    return CannotCut(
        f"its stages do not fit into memory with any cut: {name} would need at least {_gib(needed[rank])} and has "
        f"{_gib(limits[rank])} free",
        field="devices",
        remedy=remedies + ".",
    )


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:,.2f} GiB"
