"""Breakdown of each rank's step time into computation, communication, and waiting for slower ranks.

A rank is blocked in a collective from the moment when it has nothing else to do until the collective completes. The
last rank to arrive is blocked only for the communication. The other ranks are also blocked while they wait for it. So
the shortest blocked time of a collective is the communication, and the rest is waiting.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import NamedTuple

import torch
from torch.nn.parallel import DistributedDataParallel

from engine.contract.events import RanksTimed, RankTimes
from engine.strategies.collectives import Collectives
from engine.strategies.profiler import StepProfiler
from engine.torch_compat import device_events

MIN_EXTRA_WAIT = 0.05
"""Minimum time that all other ranks must wait for a rank to call it a straggler, as a fraction of the step."""

Interval = tuple[float, float]
"""Start and end in seconds."""


class StepTime(NamedTuple):
    """Duration of a step on one rank, and its blocked time in each collective, in seconds.

    Collectives are in the order of their calls.
    """

    seconds: float
    blocked_s: tuple[float, ...]


def merge_intervals(intervals: Sequence[Interval]) -> list[Interval]:
    """Merge overlapping intervals, and return the result in order."""
    covered: list[Interval] = []
    for start, end in sorted(intervals):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        else:
            covered.append((start, end))
    return covered


def compute_length_outside(interval: Interval, covered: Sequence[Interval]) -> float:
    """Return the length of the part of `interval` that is outside the intervals `covered`, a result of `merge_intervals`."""
    start, end = interval
    inside = 0.0
    first_overlap = bisect_left(covered, start, key=itemgetter(1))  # by the ends
    for index in range(first_overlap, len(covered)):
        covered_start, covered_end = covered[index]
        if covered_start >= end:
            break
        inside += min(end, covered_end) - max(start, covered_start)
    return end - start - inside


def compute_blocked_times(collectives: Sequence[Interval], computing: Sequence[Interval]) -> tuple[float, ...]:
    """Return the seconds in each collective, in order of starts, during which this rank does not compute.

    `collectives` and `computing` are the intervals in which the rank communicates and computes. If collectives overlap,
    their common time counts only for the first one.
    """
    covered = merge_intervals(computing)
    blocked: list[float] = []
    counted_until = -math.inf
    for start, end in sorted(collectives):
        uncounted_start = max(start, counted_until)
        blocked.append(compute_length_outside((uncounted_start, end), covered) if uncounted_start < end else 0.0)
        counted_until = max(counted_until, end)
    return tuple(blocked)


def combine_step_times(step: int, rank_times: Sequence[StepTime]) -> RanksTimed:
    """Create the event with the times of all ranks in `step`.

    If ranks recorded different numbers of collectives, all collectives of each rank are treated as one.
    """
    if len({len(times.blocked_s) for times in rank_times}) > 1:
        rank_times = [times._replace(blocked_s=(sum(times.blocked_s),)) for times in rank_times]
    by_collective = zip(*(times.blocked_s for times in rank_times), strict=True)
    communication_s = sum(map(min, by_collective))  # the last rank to arrive doesn't wait
    ranks = []
    for times in rank_times:
        blocked_s = sum(times.blocked_s)
        ranks.append(
            RankTimes(
                compute_s=max(0.0, times.seconds - blocked_s),
                communication_s=communication_s,
                waiting_s=max(0.0, blocked_s - communication_s),
            )
        )
    step_s = max(times.seconds for times in rank_times)
    return RanksTimed(step=step, ranks=tuple(ranks), straggler=find_straggler(ranks, step_s))


def find_straggler(ranks: Sequence[RankTimes], step_s: float) -> int | None:
    """Return the rank that all other ranks wait for, or None if there is none.

    Each other rank must wait longer than the fraction MIN_EXTRA_WAIT of the step's duration `step_s`.
    """
    by_wait = sorted(range(len(ranks)), key=lambda rank: ranks[rank].waiting_s)
    if len(by_wait) < 2:
        return None
    slowest, second = by_wait[:2]  # the slowest rank waits least
    margin_s = ranks[second].waiting_s - ranks[slowest].waiting_s
    return slowest if margin_s > MIN_EXTRA_WAIT * step_s else None


class HostTimer:
    """Timer for CPU workers. The strategy reports to it how long collectives blocked the rank."""

    def __init__(self) -> None:
        self.running = False
        self._blocked: list[float] = []  # seconds for which each collective blocked the rank
        self._started = 0.0

    def start(self) -> None:
        """Start to time a step, without the collectives of earlier steps."""
        self.running, self._blocked = True, []
        self._started = time.perf_counter()

    def stop(self) -> StepTime:
        """Return the step's duration and the blocked time of each collective, and ignore collectives from now on."""
        self.running = False
        return StepTime(time.perf_counter() - self._started, tuple(self._blocked))

    def add_blocked_since(self, start: float) -> None:
        """Record that a collective has blocked this rank from `start` (time.perf_counter) until now."""
        if self.running:
            self._blocked.append(time.perf_counter() - start)


class KernelTimer:
    """Timer for GPU workers. With torch.profiler, it distinguishes NCCL's kernels from those that compute.

    NCCL's kernels include the time in which the device waits for other ranks.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._started = 0.0

    def start(self) -> None:
        """Wait for the device, and start to record its kernels."""
        torch.cuda.synchronize(self._device)
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self._profile.start()
        self._started = time.perf_counter()

    def stop(self) -> StepTime:
        """Wait for the device, and return the step's duration and the blocked time of each of NCCL's kernels."""
        torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self._started
        self._profile.stop()
        collectives: list[Interval] = []
        computing: list[Interval] = []
        for kernel, start, end in device_events(self._profile, torch.autograd.DeviceType.CUDA):
            intervals = collectives if "nccl" in kernel.lower() else computing
            intervals.append((start, end))
        return StepTime(seconds, compute_blocked_times(collectives, computing))


class RankProfiler(StepProfiler):
    """Profiler that records how long each rank computes and waits. Ranks process different parts of a batch."""

    records = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.timer: HostTimer | KernelTimer = KernelTimer(device) if device.type == "cuda" else HostTimer()
        self._step_time: StepTime | None = None

    @contextmanager
    def time_step(self) -> Iterator[None]:
        """Context manager that times the step in its block, if this step is recorded."""
        if not self.recording:
            yield
            return
        started = time.perf_counter()
        self.timer.start()
        yield
        self._step_time = self.timer.stop()
        self.cost_s = time.perf_counter() - started - self._step_time.seconds

    def _collect_event(self, step: int, collectives: Collectives) -> RanksTimed | None:
        """Gather the times of all ranks. All ranks call this together.

        Returns the event about the times on rank 0, and None on other ranks.
        """
        rank_times = collectives.gather_objects(self._step_time)
        return None if rank_times is None else combine_step_times(step, rank_times)


class ShardProfiler(RankProfiler):
    """Profiler for ranks that also gather parameters from each other in the forward and the backward pass."""

    reducing_parts = ("forward", "backward")


@contextmanager
def time_reduction(timer: HostTimer | KernelTimer, model: DistributedDataParallel) -> Iterator[None]:
    """Context manager that times DDP's communication in a forward and backward pass, for CPU workers.

    The rank counts as blocked from the start until DDP has broadcast the buffers, and again from its last local
    gradient until the end of the reduction.
    """
    if not isinstance(timer, HostTimer) or not timer.running:
        yield
        return
    started = last_gradient_at = time.perf_counter()

    def on_gradient(_: torch.Tensor) -> None:
        nonlocal last_gradient_at
        last_gradient_at = time.perf_counter()

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    hooks = [parameter.register_post_accumulate_grad_hook(on_gradient) for parameter in trained]
    hooks.append(model.module.register_forward_pre_hook(lambda *_: timer.add_blocked_since(started)))
    try:
        yield
        timer.add_blocked_since(last_gradient_at)
    finally:
        for hook in hooks:
            hook.remove()
