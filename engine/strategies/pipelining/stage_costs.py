"""Measurement of the time and memory that each segment of a model needs on the devices that train it.

A pipeline calls `measure_rank` and `measure_seconds_per_byte` on the ranks of its first replica, and `assemble_split`
on rank 0, which computes the split from the measurements. Other replicas only receive it. Finally, `split_graph`
divides the model at `select_split_points(traces, split)`.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import psutil
import torch
import torch.distributed as dist
from torch import Tensor, fx, nn
from torch.autograd.graph import saved_tensors_hooks

from engine.contract.job import Job
from engine.contract.model_split import ModelSplit, Segment
from engine.optim.optimizer_step import OptimizerStep
from engine.parallel.layout import Layout
from engine.parallel.peak_microbatches import find_peaks_in_flight
from engine.parallel.split_points import CannotSplit, choose_points, compute_stages
from engine.strategies.distributed import tensors_of
from engine.strategies.pipelining.model_split import SplitPoint, Traces, module_of, split_graph

ROUNDS = 2
"""Number of measurements of all segments of the model.

With several, a segment slowed by other work on the device is measured again.
"""
MAX_RUNS = 3
"""Maximum number of runs of a segment in a round. The fastest run counts."""
TIME_BUDGET_S = 2.0
"""Time budget for measuring all segments, in seconds. Each segment gets an equal part of it.

After the warm-up, a segment is repeated until its part is used up. The second round starts only if the budget is not
used up.
"""
MAX_REPEATED_RUN_S = 0.5
"""Maximum duration of a run that is repeated on a CPU, in seconds. In longer runs, the warm-up hardly matters."""
USABLE_FRACTION = 0.9
"""Fraction of a device's free memory that pipeline stages may use.

Workspaces, communication buffers and fragmentation need the rest.
"""
TRANSFER_BYTES = 4 << 20
"""Size of the messages that measure the transfer time, about the size of an activation."""
TIMED_TRANSFERS = 3
"""Number of transfers that are timed. The fastest counts, because the first one takes longer."""
STATE_BYTES = {"sgd": 12, "adam": 16, "adamw": 16}
"""Bytes per parameter for weight, gradient and the optimizer's one or two averages in fp32, by optimizer."""
AVERAGE_BYTES = 4
"""Bytes per parameter for the moving average of weights."""
UPDATED_PARAMETERS = 1 << 22
"""Number of parameters in the timed optimizer step. They are too many for the CPU's caches, as in a real model."""
TIMED_UPDATES = 3
"""Number of timed optimizer steps. The fastest counts."""


class SegmentMeasurement(NamedTuple):
    """Costs of one segment on one device, for one microbatch."""

    forward_s: float
    backward_s: float
    activation_bytes: int
    output_bytes: int


class RankCosts(NamedTuple):
    """Measurements of all segments on one rank, as plain values that can be sent to other ranks."""

    device: str
    """Name of the device in the job: a GPU's UUID, or "cpu"."""
    segments: tuple[SegmentMeasurement, ...]
    memory_bytes: int | None
    """Free memory of the device for stages, or None if unknown."""
    update_s: float = 0.0
    """Seconds that the optimizer needs per parameter and step."""


def measure(
    model: nn.Module,
    traces: Traces,
    example: Tensor,
    *,
    clock: Callable[[], float],
    autocast: Callable[[], AbstractContextManager[None]],
    progress: Callable[[float], None] = lambda _: None,
) -> list[SegmentMeasurement]:
    """Measure the forward and backward pass of each segment between split points, on the device of `example`.

    Each segment is copied to the device and dropped afterwards. Weights, buffers, gradients, modes and random states
    therefore stay the same, and the model may be larger than the device's memory. Raises CannotSplit if a single
    segment does not fit.

    Args:
        model: Plain model, on any device. On the meta device, its segments are measured with arbitrary weights.
        traces: Graphs of the model.
        example: One microbatch [n, channels, height, width].
        clock: Synchronizes with the device and returns the time in seconds.
        autocast: Returns the context for a forward pass.
        progress: Called with the completed fraction.
    """
    segments = split_graph(model, traces.train, traces.points)
    cuda = [example.device] if example.device.type == "cuda" else []
    started = clock()
    best: list[SegmentMeasurement] = []
    with torch.random.fork_rng(devices=cuda):
        for completed_rounds in range(ROUNDS):
            measured: list[SegmentMeasurement] = []
            for segment_costs in _measure_segments(segments, traces, example, clock, autocast):
                measured.append(segment_costs)
                progress((completed_rounds + len(measured) / len(segments)) / ROUNDS)
            best = [_combine_fastest(*both) for both in zip(best, measured, strict=True)] if best else measured
            if clock() - started > TIME_BUDGET_S:
                break
    progress(1.0)
    return best


def _measure_segments(
    segments: Sequence[fx.GraphModule],
    traces: Traces,
    segment_input: Tensor,
    clock: Callable[[], float],
    autocast: Callable[[], AbstractContextManager[None]],
) -> Iterator[SegmentMeasurement]:
    """Measure the segments in order, each with the output of the previous one as its input.

    `segment_input` is the input of the first segment. Raises CannotSplit if a segment does not fit into memory.
    """
    images = len(segment_input)
    budget_s = TIME_BUDGET_S / len(segments) / ROUNDS
    for number, segment in enumerate(segments):
        try:
            run = _Run(segment, segment_input, clock, autocast)
            run.repeat(budget_s)
        except torch.OutOfMemoryError as error:
            raise CannotSplit(
                f"its part up to {_name_segment_end(traces, number)} alone does not fit into a device's memory with {images} images",
                field="devices",
                remedy="Use more microbatches, a smaller batch size or smaller images.",
            ) from error
        segment_input = run.output
        run.drop()
        yield run.measured


def _combine_fastest(first: SegmentMeasurement, second: SegmentMeasurement) -> SegmentMeasurement:
    """Combine two measurements of a segment, with the shorter time of each pass."""
    return first._replace(
        forward_s=min(first.forward_s, second.forward_s), backward_s=min(first.backward_s, second.backward_s)
    )


class _Run:
    """Repeated, timed runs of one segment.

    The segment is copied to the device of its input, `received`, until `drop` is called.
    """

    output: Tensor
    """Output of the segment, which is the input of the next one."""
    measured: SegmentMeasurement

    def __init__(
        self,
        segment: fx.GraphModule,
        received: Tensor,
        clock: Callable[[], float],
        autocast: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.segment = _copy_to_device(segment, received.device)
        self.received = received
        self.clock = clock
        self.autocast = autocast

    def repeat(self, budget_s: float) -> None:
        """Run the segment several times, for at most about `budget_s` seconds after the warm-up.

        Sets `measured` to the segment's costs, with the times of its fastest run, and `output` to its output.
        """
        started = self.clock()
        saved = _SavedMemory([self.received, *tensors_of(self.segment)])
        with saved_tensors_hooks(saved.pack, saved.unpack):
            output, forward_s, backward_s = self._run_once()
        saved.pack(output)  # the output stays in memory until the backward pass, too
        # The first run on a GPU may take seconds to load kernels and libraries.
        on_cpu = self.received.device.type == "cpu"
        min_runs = 2 if on_cpu else 3
        for completed_runs in range(1, MAX_RUNS):
            spent_s = self.clock() - started
            if (on_cpu and spent_s > MAX_REPEATED_RUN_S) or (completed_runs >= min_runs and spent_s > budget_s):
                break
            _, forward, backward = self._run_once()
            forward_s, backward_s = min(forward_s, forward), min(backward_s, backward)
        self.measured = SegmentMeasurement(forward_s, backward_s, saved.size_bytes, output.nbytes)
        self.output = output.detach().requires_grad_(output.requires_grad)

    def drop(self) -> None:
        """Free the memory of the copy immediately.

        Otherwise it would remain until the next garbage collection, because a graph and its module refer to each other.
        """
        self.segment.to("meta")

    def _run_once(self) -> tuple[Tensor, float, float]:
        """Run the segment once, and return its output and the seconds of the forward pass and of the backward pass."""
        received = self.received.detach().requires_grad_(self.received.requires_grad)
        started = self.clock()
        with self.autocast():
            output: Tensor = self.segment(received)
        forward_s = self.clock() - started
        if not output.requires_grad:
            return output, forward_s, 0.0
        gradient = torch.ones_like(output)
        started = self.clock()
        output.backward(gradient)
        return output, forward_s, self.clock() - started


def _copy_to_device(segment: fx.GraphModule, device: torch.device) -> fx.GraphModule:
    """Copy a segment to `device`.

    Parameters and buffers on the meta device get random values, since their values don't affect the measured times.
    These are positive, as variances must be, and small, so that activations remain finite.
    """
    copied = copy.deepcopy(segment)
    if not any(tensor.is_meta for tensor in tensors_of(copied)):
        return copied.to(device)
    copied = copied.to_empty(device=device)
    for tensor in tensors_of(copied):
        if tensor.is_floating_point():
            torch.nn.init.uniform_(tensor, 0.0, 0.02)
        else:
            tensor.data.zero_()
    return copied


class _SavedMemory:
    """Hooks for autograd's saved tensors, which add up their memory, `size_bytes`.

    Each storage is counted once. Storages of the tensors `excluded` are not counted.
    """

    def __init__(self, excluded: Sequence[Tensor]) -> None:
        self._known_storages = {tensor.untyped_storage().data_ptr() for tensor in excluded}
        self.size_bytes = 0

    def pack(self, tensor: Tensor) -> Tensor:
        """Count the storage of `tensor`, unless it is known, and return the tensor detached."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._known_storages:
            self._known_storages.add(storage.data_ptr())
            self.size_bytes += storage.nbytes()
        return tensor.detach()  # otherwise an output would keep itself alive

    def unpack(self, tensor: Tensor) -> Tensor:
        return tensor


def _name_segment_end(traces: Traces, number: int) -> str:
    """Return the module after which segment `number` ends, or "its end" for the model's last segment."""
    return traces.points[number].module if number < len(traces.points) else "its end"


def measure_rank(
    model: nn.Module,
    traces: Traces,
    example: Tensor,
    *,
    job: Job,
    device: str,
    workers: int,
    clock: Callable[[], float],
    autocast: Callable[[], AbstractContextManager[None]],
    progress: Callable[[float], None] = lambda _: None,
) -> RankCosts:
    """Measure the model and the optimizer on this rank, and determine the free memory of its device.

    `device` is the name of the device in the job, and `workers` the number of ranks that share the CPU's memory. For
    the other arguments, see `measure`.
    """
    free = measure_free_bytes(example.device, workers)
    costs = measure(model, traces, example, clock=clock, autocast=autocast, progress=progress)
    return RankCosts(device, tuple(costs), free, measure_update_s(job, example.device, clock))


def measure_update_s(job: Job, device: torch.device, clock: Callable[[], float]) -> float:
    """Measure the seconds per parameter that a step of the job's optimizer takes.

    The step includes clipping and weight averaging.
    """
    tensors = [nn.Parameter(torch.ones(UPDATED_PARAMETERS // 4, device=device)) for _ in range(4)]
    for tensor in tensors:
        tensor.grad = torch.ones_like(tensor)
    plain = job.with_fields(schedule="none", precision="fp32")  # fp32 needs no gradient scaling
    optimizer_step = OptimizerStep([(str(number), tensor) for number, tensor in enumerate(tensors)], plain, 1, device)
    seconds = []
    for _ in range(TIMED_UPDATES):
        started = clock()
        optimizer_step.step()
        seconds.append(clock() - started)
    return min(seconds) / UPDATED_PARAMETERS


def measure_free_bytes(device: torch.device, workers: int) -> int:
    """Return the free memory of `device` that one rank may use, in bytes.

    `workers` is the number of ranks that share the CPU's memory.
    """
    if device.type != "cuda":
        return int(psutil.virtual_memory().available / max(1, workers) * USABLE_FRACTION)
    free, _ = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int((free + unused) * USABLE_FRACTION)


def measure_seconds_per_byte(group: dist.ProcessGroup | None, device: torch.device) -> float:
    """Measure how many seconds it takes to send one byte to the next rank of `group`.

    Returns the maximum over the ranks of the group, or 0 for a group with a single rank. All ranks of the group call it
    together. None means the group of all ranks.
    """
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    payload = torch.zeros(TRANSFER_BYTES, dtype=torch.uint8, device=device)
    answer = torch.zeros(1, dtype=torch.uint8, device=device)
    slowest = torch.zeros(1, dtype=torch.float64, device=device)
    for sender in range(world - 1):  # one after another, so that transfers don't share links
        if rank == sender:
            seconds = math.inf
            for _ in range(TIMED_TRANSFERS):
                started = time.perf_counter()
                dist.send(payload, group=group, group_dst=sender + 1)
                dist.recv(answer, group=group, group_src=sender + 1)
                answer.item()  # waits for the device
                seconds = min(seconds, time.perf_counter() - started)
            slowest.fill_(seconds)
        elif rank == sender + 1:
            for _ in range(TIMED_TRANSFERS):
                dist.recv(payload, group=group, group_src=sender)
                dist.send(answer, group=group, group_dst=sender)
    dist.all_reduce(slowest, dist.ReduceOp.MAX, group=group)
    return float(slowest.item()) / TRANSFER_BYTES


def assemble_split(
    model: nn.Module,
    traces: Traces,
    *,
    job: Job,
    layout: Layout,
    gathered: Sequence[RankCosts],
    link_seconds_per_byte: float,
) -> ModelSplit:
    """Return a model's split into stages with the measurements behind it.

    If the job names no split points, they are chosen so that the measured costs are balanced.

    Args:
        model: Plain model, on any device.
        traces: Graphs of the model.
        job: Job that trains it.
        layout: Layout of the job's ranks.
        gathered: Measurements of the ranks in one replica, in order of ranks.
        link_seconds_per_byte: Seconds that it takes to send one byte from rank to rank.

    Raises:
        CannotSplit: The job's split points or batch size are impossible.
    """
    if layout.microbatches is None:
        raise CannotSplit(
            f"a batch of {job.training.batch_size} can't be divided into microbatches for {job.parallel.pipeline_schedule}",
            field="batch_size",
            remedy="Set another batch size.",
        )
    images = job.training.batch_size // (layout.replicas * job.training.accumulation * layout.microbatches)
    split = ModelSplit(
        segments=_combine_measurements(model, traces, gathered, layout.microbatches * job.training.accumulation),
        split_points=job.parallel.split_points,
        stage_ranks=layout.stage_ranks,
        devices=tuple(rank.device for rank in gathered),
        microbatch_size=max(1, images),
        microbatches=layout.microbatches,
        in_flight=find_peaks_in_flight(job.parallel.pipeline_schedule, layout.microbatches, layout.stage_ranks),
        state_bytes=STATE_BYTES[job.optimizer.name] + (AVERAGE_BYTES if job.training.ema_decay is not None else 0),
        memory_bytes=tuple(rank.memory_bytes for rank in gathered),
        seconds_per_byte=link_seconds_per_byte,
        recomputed=job.parallel.activation_checkpointing,
        phased=layout.microbatches > 1 and job.parallel.pipeline_schedule == "gpipe",
        chosen=False,
    )
    if not job.parallel.split_points:
        return choose_points(split)
    try:
        compute_stages(split)
    except ValueError as error:
        remedy = "Choose other positions, or leave the split points empty."
        raise CannotSplit(str(error), field="split_points", remedy=remedy) from error
    return split


def _combine_measurements(
    model: nn.Module, traces: Traces, gathered: Sequence[RankCosts], microbatches: int
) -> tuple[Segment, ...]:
    """Combine the measurements of all ranks into segments.

    The optimizer's time per step is divided among the `microbatches` of a step and added to their backward passes.
    """
    segments = []
    for number, segment in enumerate(split_graph(model, traces.train, traces.points)):
        costs = [rank.segments[number] for rank in gathered]
        calls = [node for node in segment.graph.nodes if node.op.startswith("call_")]
        trained_count = sum(parameter.numel() for parameter in segment.parameters() if parameter.requires_grad)
        point = traces.points[number] if number < len(traces.points) else None
        segments.append(
            Segment(
                split_point=point.node if point else "",
                module=point.module if point else module_of(calls[-1]),
                # Number of modules that hold parameters themselves, not only in submodules.
                layers=sum(any(True for _ in module.parameters(recurse=False)) for module in segment.modules()),
                parameters=sum(parameter.numel() for parameter in segment.parameters()),
                forward_s=tuple(cost.forward_s for cost in costs),
                backward_s=tuple(
                    cost.backward_s + rank.update_s * trained_count / microbatches
                    for cost, rank in zip(costs, gathered, strict=True)
                ),
                activation_bytes=max(cost.activation_bytes for cost in costs),
                output_bytes=max(cost.output_bytes for cost in costs),
                first_module=module_of(calls[0]),
            )
        )
    return tuple(segments)


def select_split_points(traces: Traces, split: ModelSplit) -> tuple[SplitPoint, ...]:
    """Return the split points of `split` as found in `traces`, for use in `split_graph`."""
    by_name = {point.node: point for point in traces.points}
    return tuple(by_name[name] for name in split.split_points)
