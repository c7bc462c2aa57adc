"""What a run has said so far, sorted into arrays that plots can show as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

import numpy as np

from engine.contract.devices import DeviceSample
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    Chosen,
    CommandReceived,
    DevicesFree,
    DevicesSampled,
    EpochStarted,
    EventsLost,
    Failed,
    LogLine,
    Outcome,
    Phase,
    PhaseChanged,
    Planned,
    RanksTimed,
    RunFinished,
    RunStarted,
    ScheduleTraced,
    StepMetrics,
    TimeSpent,
    Validation,
    Warned,
)
from gui.plots.columns import Column, Floats

LineKind = Literal["debug", "info", "warning", "error"]


_ENDINGS: dict[Outcome, str] = {
    "completed": "The run is complete",
    "stopped": "The run has been stopped",
    "failed": "The run has failed",
}


@dataclass(frozen=True)
class Line:
    """A line of the log as it is shown; `seconds` since the run's start."""

    seconds: float
    kind: LineKind
    text: str


class Steps:
    """A column for each figure of the training steps, all of one length.

    `seconds` count from the run's start; `wait_share` is the part of each step spent waiting for data, 0 to 1.
    """

    def __init__(self) -> None:
        self.seconds = Column()
        self.step = Column()
        self.loss = Column()
        self.accuracy = Column()
        self.learning_rate = Column()
        self.images_per_second = Column()
        self.data_wait_s = Column()
        self.compute_s = Column()

    def extend(self, events: Sequence[StepMetrics], began: float) -> None:
        """Adds steps in order; `began` is the run's start in seconds since the epoch."""
        self.seconds.extend(_floats(events, "time") - began)
        for name in _STEP_FIGURES:
            column: Column = getattr(self, name)
            column.extend(_floats(events, name))


_STEP_FIGURES = ("step", "loss", "accuracy", "learning_rate", "images_per_second", "data_wait_s", "compute_s")


def _floats(all_of_them: Sequence[StepMetrics | DeviceSample], name: str) -> Floats:
    """One field of all of them, NaN for None."""
    return np.array(list(map(attrgetter(name), all_of_them)), np.float64)


class Validations:
    """When the validation set was gone through, and a column for each measure, by its id."""

    def __init__(self) -> None:
        self.seconds = Column(16)
        self.step = Column(16)
        self.epoch = Column(16)
        self.measures: dict[str, Column] = {}

    def append(self, seconds: float, event: Validation) -> None:
        for name in event.measures:
            if name not in self.measures:
                self.measures[name] = Column(16)
                self.measures[name].extend([float("nan")] * len(self.seconds))
        self.seconds.append(seconds)
        self.step.append(event.step)
        self.epoch.append(event.epoch)
        for name, column in self.measures.items():
            column.append(event.measures.get(name))


class DeviceColumns:
    """A run's samples of one device; `step` is the training step at the time."""

    def __init__(self) -> None:
        self.seconds = Column()
        self.step = Column()
        self.utilization_percent = Column()
        self.memory_used_bytes = Column()
        self.power_w = Column()
        self.temperature_c = Column()
        self.memory_total_bytes: int | None = None

    def extend(self, told: Sequence[tuple[float, float, DeviceSample]]) -> None:
        """Adds samples in order, each with its seconds and step."""
        seconds, steps, samples = zip(*told, strict=True)
        self.seconds.extend(seconds)
        self.step.extend(steps)
        for name in _SAMPLE_FIGURES:
            column: Column = getattr(self, name)
            column.extend(_floats(samples, name))
        totals = (sample.memory_total_bytes for sample in reversed(samples))
        self.memory_total_bytes = next(filter(None, totals), self.memory_total_bytes)


_SAMPLE_FIGURES = ("utilization_percent", "memory_used_bytes", "power_w", "temperature_c")


@dataclass
class RunData:
    """All that a run has said. `apply` and `apply_all` take its events in order."""

    started: RunStarted | None = None
    plan: Planned | None = None
    phase: Phase | None = None
    phase_detail: str = ""
    epoch: int = 0
    last_n: int = 0
    last_time: float = 0.0
    steps: Steps = field(default_factory=Steps)
    validations: Validations = field(default_factory=Validations)
    devices: dict[str, DeviceColumns] = field(default_factory=dict)
    trace: ScheduleTraced | None = None
    """The latest; those before it are not kept."""
    rank_times: RanksTimed | None = None
    time_spent: TimeSpent | None = None
    lines: list[Line] = field(default_factory=list)
    checkpoints: dict[str, CheckpointSaved] = field(default_factory=dict)
    failure: Failed | None = None
    devices_free: DevicesFree | None = None
    finished: RunFinished | None = None
    stop_asked: bool = False
    _entered: set[Phase] = field(default_factory=set)
    _began: float | None = None
    """When the first event was, in seconds since the epoch."""

    def seconds(self, event: AnyEvent) -> float:
        """When `event` was, in seconds since the run's start."""
        return event.time - (event.time if self._began is None else self._began)

    def apply(self, event: AnyEvent) -> None:
        """Takes in the next event; one that has been taken in already is passed over."""
        self.apply_all((event,))

    def apply_all(self, events: Sequence[AnyEvent]) -> None:
        """Takes in the next events. Figures are added together: one by one, a long log took four times as long."""
        fresh: list[StepMetrics] = []
        sampled: dict[str, list[tuple[float, float, DeviceSample]]] = {}
        step = self.steps.step.last if len(self.steps.step) else 0.0
        for event in events:
            if event.n <= self.last_n:
                continue
            self.last_n = event.n
            if self._began is None:
                self._began = event.time
            if type(event) is StepMetrics:
                fresh.append(event)
                self.epoch, step = event.epoch, event.step
            elif type(event) is DevicesSampled:
                for sample in event.samples:
                    sampled.setdefault(sample.device, []).append((self.seconds(event), step, sample))
            else:
                self._apply_other(event)
            self.last_time = event.time
        if fresh and self._began is not None:
            self.steps.extend(fresh, self._began)
        for device, told in sampled.items():
            self.devices.setdefault(device, DeviceColumns()).extend(told)

    def _apply_other(self, event: AnyEvent) -> None:
        match event:
            case ScheduleTraced():
                self.trace = event
            case RanksTimed():
                self.rank_times = event
            case TimeSpent():
                self.time_spent = event
            case LogLine():
                rank = f"[rank {event.rank}] " if event.rank is not None else ""
                self._say(event, event.level, f"{rank}{event.text}")
            case Chosen():
                self._say(event, "info", event.words)
            case Validation():
                self.validations.append(self.seconds(event), event)
                self._say(event, "info", _validation_words(event))
            case _:
                self._apply_milestone(event)

    def _apply_milestone(self, event: AnyEvent) -> None:
        match event:
            case RunStarted():
                # A run that goes on after an interruption keeps its first start, so that its curves go on too.
                self.started = self.started or event
                self.finished = self.devices_free = self.failure = None
                self.stop_asked = False
                self._say(event, "info", f"Run {event.run_id} started with {_workers(event.world_size)}")
            case PhaseChanged():
                self._enter(event)
            case Planned():
                self.plan = event
                if event.shares:
                    self._say(event, "info", shares_words(event.shares))
            case EpochStarted():
                self.epoch = event.epoch
            case CheckpointSaved():
                self.checkpoints[event.kind] = event
                self._say(event, "info", f"Saved the {event.kind} checkpoint to {event.path}")
            case Warned():
                self._say(event, "warning", event.message)
            case EventsLost():
                self._say(event, "warning", f"{event.count} measurements are missing here: {event.reason}")
            case Failed():
                # What fails first is the cause; what other ranks say after it follows from it.
                self.failure = self.failure or event
                self._say(event, "error", event.cause)
            case CommandReceived():
                self.stop_asked = self.stop_asked or event.command == "stop"
                self._say(event, "info", f"Asked to {event.command.replace('_', ' ')}")
            case DevicesFree():
                self.devices_free = event
                seen = "" if event.verified else " (the workers are gone; the memory could not be looked at)"
                self._say(event, "info", f"Devices are free{seen}")
            case RunFinished():
                self.finished = event
                self._say(event, "error" if event.outcome == "failed" else "info", _ENDINGS[event.outcome])

    def _enter(self, event: PhaseChanged) -> None:
        """Every epoch validates and saves; the log tells of a phase once, unless there is more to say of it."""
        self.phase, self.phase_detail = event.phase, event.detail
        if event.detail:
            self._say(event, "info", f"{event.phase.capitalize()}: {event.detail}")
        elif event.phase not in self._entered:
            self._say(event, "info", event.phase.capitalize())
        self._entered.add(event.phase)

    def _say(self, event: AnyEvent, kind: LineKind, text: str) -> None:
        self.lines.append(Line(self.seconds(event), kind, text))


def shares_words(shares: tuple[float, ...]) -> str:
    """ "Shares of each batch: 62 %, 38 %, by measured speed"."""
    return f"Shares of each batch: {', '.join(f'{100 * share:.0f} %' for share in shares)}, by measured speed"


def _workers(world_size: int) -> str:
    return "one worker" if world_size == 1 else f"{world_size} workers"


def _validation_words(event: Validation) -> str:
    measures = ", ".join(
        f"{name} {value:.4f}" if name == "loss" else f"{name} {100 * value:.2f} %"
        for name, value in event.measures.items()
    )
    return f"Validation after epoch {event.epoch}: {measures}"
