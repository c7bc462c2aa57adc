"""Where the time of a step went on each rank: computing, joining what the ranks computed, waiting for slower ones.

A rank stands still in a collective from when it has nothing else to do until the collective is done. The rank that
comes last to a collective stands still for as long as the communication itself takes, the others for as long as they
wait for it besides. So of the times that the ranks stood still in one collective the least is the communication, and
what is above it is waiting.
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

STANDS_OUT = 0.05
"""A rank is a straggler if every other rank waits longer than it does by at least this share of the step."""

Interval = tuple[float, float]
"""Start and end, in seconds."""


class Spent(NamedTuple):
    """One rank's step: how long it took, and how long it stood still in each collective, in order; in seconds."""

    seconds: float
    still: tuple[float, ...]


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """What `intervals` cover together, in order and without overlaps."""
    covered: list[Interval] = []
    for begin, end in sorted(intervals):
        if covered and begin <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], end))
        else:
            covered.append((begin, end))
    return covered


def outside(interval: Interval, covered: Sequence[Interval]) -> float:
    """How much of `interval` lies outside of `covered`, which is as `union` gives it."""
    begin, end = interval
    inside = 0.0
    index = bisect_left(covered, begin, key=itemgetter(1))
    while index < len(covered) and covered[index][0] < end:
        inside += min(end, covered[index][1]) - max(begin, covered[index][0])
        index += 1
    return end - begin - inside


def stood_still(collectives: Sequence[Interval], computing: Sequence[Interval]) -> tuple[float, ...]:
    """The seconds of each of `collectives`, by its begin, beside which nothing of `computing` ran.

    Where collectives overlap, what they share counts for the first of them.
    """
    covered = union(computing)
    still: list[float] = []
    reached = -math.inf
    for begin, end in sorted(collectives):
        own = max(begin, reached)
        still.append(outside((own, end), covered) if own < end else 0.0)
        reached = max(reached, end)
    return tuple(still)


def ranks_timed(step: int, spent: Sequence[Spent]) -> RanksTimed:
    """The event about what each rank spent on `step`, by rank; where they did not see as many collectives, as if there
    had been one.
    """
    if len({len(one.still) for one in spent}) > 1:
        spent = [one._replace(still=(sum(one.still),)) for one in spent]
    communication = sum(min(stood) for stood in zip(*(one.still for one in spent), strict=True))
    ranks = []
    for one in spent:
        still = sum(one.still)
        ranks.append(
            RankTimes(
                compute_s=max(0.0, one.seconds - still),
                communication_s=communication,
                waiting_s=max(0.0, still - communication),
            )
        )
    return RanksTimed(step=step, ranks=tuple(ranks), straggler=straggler(ranks, max(one.seconds for one in spent)))


def straggler(ranks: Sequence[RankTimes], step_s: float) -> int | None:
    """The rank that all others wait for, by more than STANDS_OUT of the step's `step_s`; None where there is none."""
    order = sorted(range(len(ranks)), key=lambda rank: ranks[rank].waiting_s)
    if len(order) < 2:
        return None
    ahead = ranks[order[1]].waiting_s - ranks[order[0]].waiting_s
    return order[0] if ahead > STANDS_OUT * step_s else None


class HostTimer:
    """For workers on the CPU: what the strategy says it stood still in is added up."""

    def __init__(self) -> None:
        self.running = False
        self._still: list[float] = []
        self._begun = 0.0

    def start(self) -> None:
        self.running, self._still = True, []
        self._begun = time.perf_counter()

    def stop(self) -> Spent:
        self.running = False
        return Spent(time.perf_counter() - self._begun, tuple(self._still))

    def stood_since(self, begin: float) -> None:
        """A collective is done in which this rank has stood still since `begin` (of time.perf_counter)."""
        if self.running:
            self._still.append(time.perf_counter() - begin)


class KernelTimer:
    """For workers on a GPU: the kernels of NCCL against all that ran beside them, by torch.profiler.

    A kernel of NCCL waits on the device for the other ranks.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begun = 0.0

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self._profile.start()
        self._begun = time.perf_counter()

    def stop(self) -> Spent:
        torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self._begun
        self._profile.stop()
        collectives: list[Interval] = []
        computing: list[Interval] = []
        for event in self._profile.events() or ():
            if event.device_type != torch.autograd.DeviceType.CUDA or event.is_user_annotation:
                continue
            interval = (event.time_range.start / 1e6, event.time_range.end / 1e6)
            (collectives if "nccl" in event.name.lower() else computing).append(interval)
        return Spent(seconds, stood_still(collectives, computing))


class RankProfiler(StepProfiler):
    """For strategies whose ranks all do the same, each on its share of a batch: tells where the time of a step went on
    each.
    """

    records = True

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.timer: HostTimer | KernelTimer = KernelTimer(device) if device.type == "cuda" else HostTimer()
        self._spent: Spent | None = None

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Goes around a step."""
        if not self.recording:
            yield
            return
        self.timer.start()
        yield
        self._spent = self.timer.stop()

    def _recorded(self, step: int, collectives: Collectives) -> RanksTimed | None:
        everyone = collectives.gather_objects(self._spent)
        return None if everyone is None else ranks_timed(step, everyone)


class ShardProfiler(RankProfiler):
    """For ranks that also fetch parameters from each other, before the passes."""

    joined_in = ("forward", "backward")


@contextmanager
def joining_gradients(timer: HostTimer | KernelTimer, model: DistributedDataParallel) -> Iterator[None]:
    """Goes around a pass forward and backward, before which rank 0's buffers are given to all ranks and at whose end
    the gradients are joined over them.

    A rank stands still until the buffers are there, and from when the last of its own gradients is.
    """
    if not isinstance(timer, HostTimer) or not timer.running:
        yield
        return
    begun = last = time.perf_counter()

    def ready(_: torch.Tensor) -> None:
        nonlocal last
        last = time.perf_counter()

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    hooks = [parameter.register_post_accumulate_grad_hook(ready) for parameter in trained]
    hooks.append(model.module.register_forward_pre_hook(lambda *_: timer.stood_since(begun)))
    try:
        yield
        timer.stood_since(last)
    finally:
        for hook in hooks:
            hook.remove()
