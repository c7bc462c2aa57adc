"""Timeline of the passes in a pipeline's step, and the idle time of schedules."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

import torch

from engine.contract.events import Action, ScheduleTraced
from engine.strategies.collectives import Collectives
from engine.strategies.profiler import StepProfiler

Kind = Literal["F", "B", "I", "W"]
COSTS: dict[Kind, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
"""Cost of a pass in theory, relative to a forward pass.

A backward pass (B) consists of two equal halves, for inputs (I) and for weights (W).
"""


class Pass(NamedTuple):
    """Pass of a microbatch through a stage.

    A pass of `kind` F is a forward pass, and B a backward pass. I and W are its halves for inputs and weights.
    """

    kind: Kind
    stage: int
    microbatch: int


Order = tuple[tuple[Pass, ...], ...]
"""Passes of each rank of a pipeline, in the order of execution."""


def gpipe(devices: int, microbatches: int) -> Order:
    """Return the passes of each device under GPipe: all forward, then all backward passes (Huang et al. 2019)."""
    return tuple(
        tuple(Pass(kind, stage, number) for kind in ("F", "B") for number in range(microbatches))
        for stage in range(devices)
    )


def one_f_one_b(devices: int, microbatches: int) -> Order:
    """Return the passes of each device under the 1F1B schedule, in the order of execution.

    Each device first runs a forward pass for each later stage, and then alternates between forward and backward passes
    (Narayanan et al. 2019).
    """
    return tuple(tuple(_one_f_one_b(stage, devices - 1 - stage, microbatches)) for stage in range(devices))


def _one_f_one_b(stage: int, warmup: int, microbatches: int) -> Iterator[Pass]:
    """Yield the passes of one stage under 1F1B, which begins with `warmup` forward passes."""
    warmup = min(warmup, microbatches)
    yield from (Pass("F", stage, number) for number in range(warmup))
    for number in range(microbatches):
        if warmup + number < microbatches:
            yield Pass("F", stage, warmup + number)
        yield Pass("B", stage, number)


def simulate(order: Order) -> list[list[tuple[float, float]]]:
    """Simulate `order`, and return the start and end of each pass on each rank.

    All stages cost the same and transfers cost nothing. The unit of time is the time that a device needs for the
    forward passes of a microbatch through all its stages. Each rank executes its passes in order, and a pass waits for
    the passes that it depends on. A forward pass depends on that of the previous stage, a backward pass on its own
    forward pass and on the backward pass of the next stage, and a backward pass for weights on the one for inputs.
    Raises ValueError if the order deadlocks.
    """
    stages = {task.stage for passes in order for task in passes}
    stage_cost = len(order) / len(stages)  # of a forward pass
    ended: dict[Pass, float] = {}
    times: list[list[tuple[float, float]]] = [[] for _ in order]
    while any(len(times[rank]) < len(passes) for rank, passes in enumerate(order)):
        has_progressed = False
        for rank, passes in enumerate(order):
            for task in passes[len(times[rank]) :]:
                dependencies = _list_dependencies(task, max(stages))
                # Any one of the alternatives must have ended: a backward pass follows a complete backward pass of the
                # next stage, or only the one for inputs if the order splits them.
                if not all(any(other in ended for other in alternatives) for alternatives in dependencies):
                    break
                completed = (other for alternatives in dependencies for other in alternatives if other in ended)
                ready = max((ended[other] for other in completed), default=0.0)
                start = max(ready, times[rank][-1][1] if times[rank] else 0.0)
                ended[task] = start + COSTS[task.kind] * stage_cost
                times[rank].append((start, ended[task]))
                has_progressed = True
        if not has_progressed:
            raise ValueError("This order of passes deadlocks.")
    return times


def _list_dependencies(task: Pass, last: int) -> list[tuple[Pass, ...]]:
    """Return the passes that `task` depends on, if `last` is the last stage.

    Each tuple lists alternatives, one of which must be complete.
    """
    kind, stage, number = task
    if kind == "F":
        return [(Pass("F", stage - 1, number),)] if stage else []
    if kind == "W":
        return [(Pass("I", stage, number),)]
    forward: list[tuple[Pass, ...]] = [(Pass("F", stage, number),)]
    return forward if stage == last else [*forward, (Pass("B", stage + 1, number), Pass("I", stage + 1, number))]


def compute_idle_fraction(times: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Return the idle fraction of the ranks' time between the first start and the last end of a pass.

    `times` has the start and end of each pass on each rank.
    """
    passes = list(itertools.chain.from_iterable(times))
    span = max(end for _, end in passes) - min(start for start, _ in passes)
    return 1.0 - sum(end - start for start, end in passes) / (span * len(times))


class ScheduleProfiler(StepProfiler):
    """Profiler that records the passes of a pipeline schedule on the ranks of the first pipeline.

    `devices` is the number of these ranks, `schedule` the name of the schedule, and `theory` its idle fraction if all
    stages cost the same.

    While recording, each rank saves the start and end of its passes. CPU workers use a clock that all processes on a
    machine share. GPU workers record events in the stream, which don't slow the step. The events are read after the
    step, and converted to the host's clock with an event whose time is known on both clocks.
    """

    records = True
    schedule: str
    devices: int
    theory: float

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._device = device
        self._passes: list[tuple[Pass, Any, Any]] = []
        """Recorded passes with their start and end, as CUDA events on a GPU or in seconds of the host's clock."""
        self._clock_reference: tuple[Any, float] | None = None
        """CUDA event and the time at which it occurred on the host's clock. None on a CPU."""

    def begin(self, *, record: bool) -> None:
        """Start a step. If it is recorded on a GPU, wait for the device to relate its events to the host's clock."""
        super().begin(record=record)
        if record and self._device.type == "cuda":
            event = self._take_time()
            event.synchronize()
            self._clock_reference = event, time.perf_counter()

    def drop_passes(self) -> None:
        """Discard the passes that were recorded until now."""
        self._passes = []

    @contextmanager
    def time_pass(self, kind: Kind, stage: int, microbatch: int) -> Iterator[None]:
        """Context manager that records the pass in its block, if this step is recorded."""
        if not self.recording:
            yield
            return
        start = self._take_time()
        yield
        self._passes.append((Pass(kind, stage, microbatch), start, self._take_time()))

    def extend_last_pass(self) -> None:
        """Set the end of the last recorded pass to the current time."""
        if self.recording and self._passes:
            task, start, _ = self._passes[-1]
            self._passes[-1] = task, start, self._take_time()

    def read_timed_passes(self) -> list[tuple[Pass, float, float]]:
        """Wait for the device, and return the recorded passes.

        Each has its start and end in seconds of the host's clock.
        """
        return [(task, self._to_seconds(start), self._to_seconds(end)) for task, start, end in self._passes]

    def _collect_event(self, step: int, collectives: Collectives) -> ScheduleTraced | None:
        """Gather the recorded passes of all ranks. All ranks call this together.

        Returns the event with the passes of the first pipeline on rank 0, and None on other ranks or if no pass was
        recorded.
        """
        ranks = collectives.gather_objects(self.read_timed_passes())
        return None if ranks is None else create_trace(step, self.schedule, ranks[: self.devices], self.theory)

    def _take_time(self) -> Any:
        """Return the time in seconds of the host's clock, or on a GPU a CUDA event recorded now."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _to_seconds(self, when: Any) -> float:
        """Convert a result of `_take_time` to seconds of the host's clock. Waits for a CUDA event to occur."""
        if self._clock_reference is None:
            return cast(float, when)
        event, seconds = self._clock_reference
        when.synchronize()
        return seconds + float(event.elapsed_time(when)) / 1e3


def create_trace(
    step: int, schedule: str, ranks: Sequence[list[tuple[Pass, float, float]]], theory: float
) -> ScheduleTraced | None:
    """Create the event with the passes of all ranks in one step, or return None if no passes were recorded.

    `ranks` has the passes of each rank, each with its start and end in seconds. `theory` is the theoretical idle
    fraction of the ranks.
    """
    times = [[(start, end) for _, start, end in passes] for passes in ranks]
    all_times = list(itertools.chain.from_iterable(times))
    if not all_times:
        return None
    first = min(start for start, _ in all_times)
    return ScheduleTraced(
        step=step,
        schedule=schedule,
        ranks=tuple(
            tuple(
                Action(task.kind, task.stage, task.microbatch, start - first, end - first)
                for task, start, end in passes
            )
            for passes in ranks
        ),
        span_s=max(end for _, end in all_times) - first,
        bubble=compute_idle_fraction(times),
        theory=theory,
    )
