"""Timeline of the passes in a pipeline's step, and the idle time of schedules."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, cast

import torch

from engine.contract.events import Action, ScheduleTraced
from engine.strategies.collectives import Collectives
from engine.strategies.profiler import StepProfiler

Kind = Literal["F", "B", "I", "W"]
COSTS: dict[Kind, float] = {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}
"""Theoretical cost of a pass, relative to a forward pass. A backward pass consists of two equal halves, I and W."""


class Pass(NamedTuple):
    """Pass of a microbatch through a stage; see `Action` for the kinds."""

    kind: Kind
    stage: int
    microbatch: int


Order = tuple[tuple[Pass, ...], ...]
"""Passes of each rank, in order."""


def gpipe(devices: int, microbatches: int) -> Order:
    """Return GPipe's order: all forward passes, then all backward passes (Huang et al. 2019)."""
    return tuple(
        tuple(Pass(kind, stage, number) for kind in ("F", "B") for number in range(microbatches))
        for stage in range(devices)
    )


def one_f_one_b(devices: int, microbatches: int) -> Order:
    """Return 1F1B's order: one forward pass per later stage, then forward and backward passes in turn.

    Source: Narayanan et al. 2019.
    """
    return tuple(tuple(_one_f_one_b(stage, devices - 1 - stage, microbatches)) for stage in range(devices))


def _one_f_one_b(stage: int, warmup: int, microbatches: int) -> Iterator[Pass]:
    warmup = min(warmup, microbatches)
    yield from (Pass("F", stage, number) for number in range(warmup))
    for number in range(microbatches):
        if warmup + number < microbatches:
            yield Pass("F", stage, warmup + number)
        yield Pass("B", stage, number)


def simulated(order: Order) -> list[list[tuple[float, float]]]:
    """Compute the start and end of each pass in `order` if all stages cost the same and transfers cost nothing.

    The unit is the time that a device needs for a microbatch's forward passes through all its stages. Each rank
    executes its passes in order. A pass waits for its prerequisites: a forward pass for that of the previous stage, a
    backward pass for its forward pass and for the backward pass of the next stage, and a weights-only pass for the
    inputs-only pass. Raises ValueError if the order deadlocks.
    """
    stages = {task.stage for passes in order for task in passes}
    share = len(order) / len(stages)
    ended: dict[Pass, float] = {}
    times: list[list[tuple[float, float]]] = [[] for _ in order]
    while any(len(times[rank]) < len(passes) for rank, passes in enumerate(order)):
        moved = False
        for rank, passes in enumerate(order):
            for task in passes[len(times[rank]) :]:
                needed = _needs(task, max(stages))
                if not all(any(other in ended for other in either) for either in needed):
                    break
                ready = max((ended[other] for either in needed for other in either if other in ended), default=0.0)
                start = max(ready, times[rank][-1][1] if times[rank] else 0.0)
                ended[task] = start + COSTS[task.kind] * share
                times[rank].append((start, ended[task]))
                moved = True
        if not moved:
            raise ValueError("This order of passes deadlocks.")
    return times


def _needs(task: Pass, last: int) -> list[tuple[Pass, ...]]:
    """Return the prerequisites of `task`. Of each tuple, one pass suffices."""
    kind, stage, number = task
    if kind == "F":
        return [(Pass("F", stage - 1, number),)] if stage else []
    if kind == "W":
        return [(Pass("I", stage, number),)]
    forward: list[tuple[Pass, ...]] = [(Pass("F", stage, number),)]
    return forward if stage == last else [*forward, (Pass("B", stage + 1, number), Pass("I", stage + 1, number))]


def idle_share(times: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Return the fraction of time that ranks are idle, from the first start to the last end."""
    every = [each for rank in times for each in rank]
    span = max(end for _, end in every) - min(start for start, _ in every)
    return 1.0 - sum(end - start for start, end in every) / (span * len(times))


class ScheduleProfiler(StepProfiler):
    """Profiler that records the passes on the ranks of the first pipeline.

    `devices` is the number of these ranks, and `theory` the idle fraction of `schedule` in theory.

    While recording, each rank saves start and end of its passes. CPU workers use the clock that all processes of a
    machine share. GPU workers record events in the stream, which do not slow the step. They are read afterwards, and
    converted to the host's clock with an event whose time is known on both clocks.
    """

    records = True
    schedule: str
    devices: int
    theory: float

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._device = device
        self._passes: list[tuple[Pass, Any, Any]] = []
        self._base: tuple[Any, float] | None = None

    def begin(self, *, record: bool) -> None:
        super().begin(record=record)
        if record and self._device.type == "cuda":
            event = self._now()
            event.synchronize()
            self._base = event, time.perf_counter()

    def forget(self) -> None:
        """Drop the recorded passes."""
        self._passes = []

    @contextmanager
    def timing(self, kind: Kind, stage: int, microbatch: int) -> Iterator[None]:
        if not self.recording:
            yield
            return
        start = self._now()
        yield
        self._passes.append((Pass(kind, stage, microbatch), start, self._now()))

    def extend(self) -> None:
        """Extend the last recorded pass to the present."""
        if self.recording and self._passes:
            task, start, _ = self._passes[-1]
            self._passes[-1] = task, start, self._now()

    def noted(self) -> list[tuple[Pass, float, float]]:
        """Wait for the device and return the recorded passes with start and end in seconds of the host's clock."""
        return [(task, self._seconds(start), self._seconds(end)) for task, start, end in self._passes]

    def _recorded(self, step: int, collectives: Collectives) -> ScheduleTraced | None:
        ranks = collectives.gather_objects(self.noted())
        return None if ranks is None else traced(step, self.schedule, ranks[: self.devices], self.theory)

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, when: Any) -> float:
        if self._base is None:
            return cast(float, when)
        event, seconds = self._base
        when.synchronize()
        return seconds + float(event.elapsed_time(when)) / 1e3


def traced(
    step: int, schedule: str, ranks: Iterable[list[tuple[Pass, float, float]]], theory: float
) -> ScheduleTraced | None:
    """Create the event about the passes of all ranks in one step. Return None if no passes were recorded."""
    noted = [list(passes) for passes in ranks]
    times = [[(start, end) for _, start, end in passes] for passes in noted]
    every = [each for rank in times for each in rank]
    if not every:
        return None
    first = min(start for start, _ in every)
    return ScheduleTraced(
        step=step,
        schedule=schedule,
        ranks=tuple(
            tuple(
                Action(task.kind, task.stage, task.microbatch, start - first, end - first)
                for task, start, end in passes
            )
            for passes in noted
        ),
        span_s=max(end for _, end in every) - first,
        bubble=idle_share(times),
        theory=theory,
    )
