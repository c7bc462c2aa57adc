"""Split of a model into pipeline stages: the costs of its stages, and the choice of its split points.

This is pure data and arithmetic, so that the window can show and move split points without torch.
`engine.strategies.pipelining.stage_costs` measures the costs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import msgspec

from engine.contract.devices import is_gpu
from engine.contract.model_split import ModelSplit
from engine.parallel.balancing import SegmentCosts, divide


class CannotSplit(ValueError):  # noqa: N818 - describes the model
    """Raised when a model can't be split into stages. The message is a clause with the reason.

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
    """Costs of a stage that consists of any range of segments, computed from running sums.

    The arguments of the methods are the number of the stage, its first segment (`start`), and the segment after its
    last one (`end`).
    """

    def __init__(self, split: ModelSplit) -> None:
        self.split = split
        recomputations = 1 if split.recomputed else 0
        ranks = range(len(split.devices))
        # Times by rank, since devices may differ.
        self._forward = [_compute_running_sums(each.forward_s[rank] for each in split.segments) for rank in ranks]
        self._backward = [
            _compute_running_sums(
                recomputations * each.forward_s[rank] + each.backward_s[rank] for each in split.segments
            )
            for rank in ranks
        ]
        self._activations = _compute_running_sums(each.activation_bytes for each in split.segments)
        self._parameters = _compute_running_sums(each.parameters for each in split.segments)
        self._layers = _compute_running_sums(each.layers for each in split.segments)

    def computing_s(self, stage: int, start: int, end: int) -> float:
        """Return the seconds of a stage for both passes, without transfers.

        The stage has the segments from `start` up to, but not including, `end`.
        """
        rank = self.split.stage_ranks[stage]
        return sum(running[rank][end] - running[rank][start] for running in (self._forward, self._backward))

    def forward_s(self, stage: int, start: int, end: int) -> float:
        """Return the seconds for the forward pass of the stage with the segments `start` to `end` - 1.

        They include the transfer of activations from the previous stage.
        """
        forward = self._forward[self.split.stage_ranks[stage]]
        return forward[end] - forward[start] + self._get_received_bytes(stage, start) * self.split.seconds_per_byte

    def backward_s(self, stage: int, start: int, end: int) -> float:
        """Return the seconds for the backward pass of the stage with the segments `start` to `end` - 1.

        They include the transfer of gradients from the next stage.
        """
        backward = self._backward[self.split.stage_ranks[stage]]
        gradient_bytes = self._get_received_bytes(stage + 1, end) if end < self.segments else 0
        return backward[end] - backward[start] + gradient_bytes * self.split.seconds_per_byte

    def seconds(self, stage: int, start: int, end: int) -> float:
        return self.forward_s(stage, start, end) + self.backward_s(stage, start, end)

    def memory_bytes(self, stage: int, start: int, end: int) -> int:
        """Return the memory in bytes that the stage with the segments `start` to `end` - 1 needs.

        This is the memory for the state of its parameters, and for the activations of its microbatches in flight.
        """
        state = self.parameters(start, end) * self.split.state_bytes
        activations = self._activations[end] - self._activations[start]
        inputs = self.split.segments[start - 1].output_bytes if start else 0
        in_flight = self.split.in_flight[stage]
        if self.split.recomputed:  # only the microbatch in the backward pass has activations
            return int(state + inputs * in_flight + activations)
        return int(state + (inputs + activations) * in_flight)

    def parameters(self, start: int, end: int) -> int:
        return int(self._parameters[end] - self._parameters[start])

    def layers(self, start: int, end: int) -> int:
        return int(self._layers[end] - self._layers[start])

    @property
    def segments(self) -> int:
        return len(self.split.segments)

    def _get_received_bytes(self, stage: int, start: int) -> int:
        """Return the number of bytes that `stage` receives for a microbatch if its first segment is `start`.

        It is 0 if the previous stage is on the same rank.
        """
        ranks = self.split.stage_ranks
        has_previous = start > 0 and 0 < stage < len(ranks)
        if not has_previous or ranks[stage - 1] == ranks[stage]:
            return 0
        return self.split.segments[start - 1].output_bytes


def _compute_running_sums(values: Iterable[float]) -> list[float]:
    """Return the running sums of `values`, with a 0 before the first value."""
    return list(itertools.accumulate(values, initial=0.0))


def compute_stages(split: ModelSplit) -> tuple[Stage, ...]:
    """Return the segments and costs of each stage of `split`, in the order of computation.

    Raises ValueError if the model can't be split at its split points, or if their order or number is wrong.
    """
    costs = _StageCosts(split)
    limits = _get_memory_limits(split)
    spans = list(itertools.pairwise((0, *_count_segments_before(split), costs.segments)))
    seconds = [costs.seconds(stage, *span) for stage, span in enumerate(spans)]
    memory = [costs.memory_bytes(stage, *span) for stage, span in enumerate(spans)]
    used_bytes = [0] * len(split.devices)
    for rank, needed in zip(split.stage_ranks, memory, strict=True):
        used_bytes[rank] += needed
    return tuple(
        Stage(
            group_rank=rank,
            device=split.devices[rank],
            first_module=split.segments[start].first_module or split.segments[start].module,
            last_module=split.segments[end - 1].module,
            layers=costs.layers(start, end),
            parameters=costs.parameters(start, end),
            seconds=seconds[stage],
            share=seconds[stage] / sum(seconds) if sum(seconds) else 1 / len(spans),
            memory_bytes=memory[stage],
            over_memory=used_bytes[rank] > limits[rank],
            sent_bytes=split.segments[end - 1].output_bytes if end < costs.segments else 0,
        )
        for stage, ((start, end), rank) in enumerate(zip(spans, split.stage_ranks, strict=True))
    )


def find_best_points(split: ModelSplit) -> tuple[str, ...]:
    """Find the split points that minimize the time of the slowest rank and fit into the memory of every device.

    If the split is `phased`, the time is that of the slowest forward passes plus that of the slowest backward passes.
    The current split points of `split` are ignored. The docstring of `balancing.divide` explains when the result is the
    optimum. Raises CannotSplit if the model has fewer possible split points than its stages need. If no split fits into
    memory, the error names the memory that is needed.
    """
    needed, points = len(split.stage_ranks) - 1, len(split.segments) - 1
    if points < needed:
        positions = "1 position" if points == 1 else f"{points} positions"
        raise CannotSplit(
            f"it can be split at {positions}, and {needed + 1} stages need {needed}",
            field="devices",
            remedy="Choose fewer devices, or another model or strategy.",
        )
    costs = _StageCosts(split)
    division = divide(
        SegmentCosts(
            segments=len(split.segments),
            stage_ranks=split.stage_ranks,
            seconds=costs.seconds,
            min_seconds=costs.computing_s,
            memory=costs.memory_bytes,
            limits=_get_memory_limits(split),
            phases=(costs.forward_s, costs.backward_s) if split.phased else (),
        )
    )
    split_points = tuple(split.segments[end - 1].split_point for end in division.ends)
    if division.excess:
        raise _create_memory_error(msgspec.structs.replace(split, split_points=split_points))
    return split_points


def choose_points(split: ModelSplit) -> ModelSplit:
    """Return a copy of `split` with the best split points, marked as `chosen`. Raises CannotSplit."""
    return msgspec.structs.replace(split, split_points=find_best_points(split), chosen=True)


def move_point(split: ModelSplit, number: int, split_point: str) -> ModelSplit:
    """Return a copy of `split` with split point `number` (from 0) moved to `split_point`, not marked as `chosen`.

    Raises ValueError if `split_point` is not one of `reachable_points`.
    """
    if split_point not in reachable_points(split, number):
        raise ValueError(f"split point {number} can't be at {split_point}")
    split_points = (*split.split_points[:number], split_point, *split.split_points[number + 1 :])
    return msgspec.structs.replace(split, split_points=split_points, chosen=False)


def reachable_points(split: ModelSplit, number: int) -> tuple[str, ...]:
    """Return the points that split point `number` (from 0) can be moved to, in order.

    These are all possible split points between its neighbors.
    """
    boundaries = (0, *_count_segments_before(split), len(split.segments))  # split point n is boundary n + 1
    between = split.segments[boundaries[number] : boundaries[number + 2] - 1]
    return tuple(segment.split_point for segment in between)


def _count_segments_before(split: ModelSplit) -> tuple[int, ...]:
    """Return the number of segments before each split point. Raises ValueError for impossible split points."""
    numbers = {segment.split_point: number for number, segment in enumerate(split.segments[:-1], start=1)}
    unknown = [name for name in split.split_points if name not in numbers]
    if unknown:
        raise ValueError(f"the model can't be split at {', '.join(unknown)}")
    ends = tuple(numbers[name] for name in split.split_points)
    if len(ends) != len(split.stage_ranks) - 1:
        raise ValueError(
            f"{len(split.stage_ranks)} stages need {len(split.stage_ranks) - 1} split points, not {len(ends)}"
        )
    if any(after <= before for before, after in itertools.pairwise(ends)):
        raise ValueError("the split points are not in the order of the computation")
    return ends


def _get_memory_limits(split: ModelSplit) -> tuple[float, ...]:
    """Return the memory limit of each rank in bytes: at least 1, and infinity if it is unknown."""
    return tuple(math.inf if limit is None else max(limit, 1) for limit in split.memory_bytes)


def _create_memory_error(split: ModelSplit) -> CannotSplit:
    """Create the error for a model that doesn't fit into memory with its best split, `split`."""
    needed = [0] * len(split.devices)
    for stage in compute_stages(split):
        needed[stage.group_rank] += stage.memory_bytes
    limits = _get_memory_limits(split)
    rank = max(range(len(needed)), key=lambda each: needed[each] / limits[each])
    name = split.devices[rank] if is_gpu(split.devices[rank]) else f"CPU worker {rank}"
    remedies = "Use more devices, a smaller batch size or smaller images"
    if not split.recomputed:
        remedies += ", or turn on activation checkpointing"
    return CannotSplit(
        f"its stages do not fit into memory with any split: {name} would need at least {_format_gib(needed[rank])} and has "
        f"{_format_gib(limits[rank])} free",
        field="devices",
        remedy=remedies + ".",
    )


def _format_gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:,.2f} GiB"
