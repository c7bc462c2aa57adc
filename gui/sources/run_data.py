"""What a run has said so far, sorted into arrays that plots can show as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from engine.contract.devices import DeviceSample
from engine.contract.events import (
    AnyEvent,
    CheckpointSaved,
    Chosen,
    ClassMeasures,
    CommandReceived,
    DevicesFree,
    DevicesSampled,
    EpochStarted,
    EventsLost,
    Failed,
    Fetching,
    LogLine,
    Outcome,
    Phase,
    PhaseChanged,
    Planned,
    Predicted,
    RanksTimed,
    Restarting,
    RunFinished,
    RunStarted,
    ScheduleTraced,
    StepMetrics,
    TimeSpent,
    Validation,
    Verdict,
    Waiting,
    Warned,
)
from engine.runs.metrics import find_measure
from engine.system.format import counted, duration
from engine.system.plain_text import shorten_texts
from gui.format import localised
from gui.sources.run_series import DeviceColumns, Looks, Steps, Validations
from gui.titles import changes_words

LineKind = Literal["debug", "info", "warning", "error"]


_ENDINGS: dict[Outcome, str] = {
    "completed": "The run completed",
    "paused": "The run was paused",
    "stopped": "The run was stopped",
    "failed": "The run failed",
    "unsaved": "The run's last state could not be saved",
}


@dataclass(frozen=True)
class Line:
    """A line of the log as it is shown; `seconds` are the run's own (see `RunData`)."""

    seconds: float
    kind: LineKind
    text: str


Asked = Literal["", "pause", "stop"]
"""The pending request to pause or stop a run."""

_IN_LINE = (Waiting, LogLine, Warned, CommandReceived, EventsLost)
"""What a run may say without having left the line."""


@dataclass(frozen=True)
class Warnings:
    """The newest warning of a kind, and how many there were."""

    count: int
    newest: Warned


@dataclass
class RunData:
    """All that a run has said. `apply` and `apply_all` take its events in order.

    Its seconds count from its first event on, as long as somebody ran it: the time between one execution and the next,
    and that in line for its devices, are left out, so that a night's pause is no flat night in its curves.
    """

    started: RunStarted | None = None
    """Of the newest execution: the job and the devices may be others than at first."""
    executions: int = 0
    device_names: dict[str, str] = field(default_factory=dict)
    """Of all executions, by the devices' ids."""
    plan: Planned | None = None
    phase: Phase | None = None
    phase_detail: str = ""
    epoch: int = 0
    step: int = 0
    """The last one made that counts, in this run or in the one whose checkpoint it goes on from."""
    last_n: int = 0
    last_time: float = 0.0
    steps: Steps = field(default_factory=Steps)
    fresh_from: int = 0
    """The index in `steps` from which on they were made by the workers that are at work now."""
    cuts: int = 0
    """How often curves have lost their end, since the run went back to a checkpoint."""
    validations: Validations = field(default_factory=Validations)
    looks: Looks = field(default_factory=Looks)
    devices: dict[str, DeviceColumns] = field(default_factory=dict)
    trace: ScheduleTraced | None = None
    """The latest; those before it are not kept."""
    rank_times: RanksTimed | None = None
    time_spent: TimeSpent | None = None
    lines: list[Line] = field(default_factory=list)
    warnings: dict[str, Warnings] = field(default_factory=dict)
    """By their code, the one that came last at the end."""
    checkpoints: dict[str, CheckpointSaved] = field(default_factory=dict)
    waiting: Waiting | None = None
    """Set while the run is queued."""
    fetching: tuple[Fetching, ...] = ()
    """The first word about the weights that are being fetched, and the latest; none once that is over."""
    restarting: Restarting | None = None
    """Set until the new workers know what lies ahead."""
    restarts: list[Restarting] = field(default_factory=list)
    failure: Failed | None = None
    devices_free: DevicesFree | None = None
    verdict: Verdict | None = None
    finished: RunFinished | None = None
    unsaved: bool = False
    """Whether its last state is kept in memory, since the disk does not take it."""
    asked: Asked = ""
    _entered: set[Phase] = field(default_factory=set)
    _origin: float = 0.0
    """Where the run's seconds count from at present, in seconds since the epoch."""
    _halted: bool = True
    """Whether the time up to the next event is left out."""

    @property
    def task(self) -> str:
        """The task's id, "" before the run has told of its job."""
        return self.started.job.task if self.started is not None else ""

    def seconds(self, event: AnyEvent) -> float:
        """When `event`, the newest, was in the run's own seconds."""
        return event.time - self._origin

    def apply(self, event: AnyEvent) -> None:
        """Takes in the next event; one that has been taken in already is passed over."""
        self.apply_all((event,))

    def apply_all(self, events: Sequence[AnyEvent]) -> None:
        """Takes in the next events. Figures are added together: one by one, a long log took four times as long."""
        fresh: list[StepMetrics] = []
        sampled: dict[str, list[tuple[float, float, DeviceSample]]] = {}
        for event in events:
            if event.n <= self.last_n:
                continue
            if self._halted or type(event) is RunStarted:
                self._add(fresh, sampled)
                self._leave_out_until(event)
            self.last_n = event.n
            if type(event) is StepMetrics:
                fresh.append(event)
                self.epoch, self.step = event.epoch, event.step
            elif type(event) is DevicesSampled:
                for sample in event.samples:
                    sampled.setdefault(sample.device, []).append((self.seconds(event), self.step, sample))
            else:
                if type(event) is Planned:
                    self._add(fresh, sampled)
                self._apply_other(event)
            self.last_time = event.time
        self._add(fresh, sampled)

    def _add(self, fresh: list[StepMetrics], sampled: dict[str, list[tuple[float, float, DeviceSample]]]) -> None:
        """Takes these figures over into the columns."""
        if fresh:
            self.steps.extend(fresh, self._origin)
            fresh.clear()
        for device, told in sampled.items():
            self.devices.setdefault(device, DeviceColumns()).extend(told)
        sampled.clear()

    def _leave_out_until(self, event: AnyEvent) -> None:
        """The run stood still before `event`."""
        self._origin = self._origin + event.time - self.last_time if self.last_n else event.time
        if not isinstance(event, _IN_LINE):
            self._halted = False
            self.waiting = None

    def _apply_other(self, event: AnyEvent) -> None:
        match event:
            case ScheduleTraced():
                self.trace = event
            case RanksTimed():
                self.rank_times = event
            case LogLine():
                rank = f"[rank {event.rank}] " if event.rank is not None else ""
                self._say(event, event.level, f"{rank}{event.text}")
            case RunStarted():
                self._start(structs.replace(shorten_texts(event), job=event.job))
            case _:
                self._apply_told(shorten_texts(event))

    def _apply_told(self, event: AnyEvent) -> None:
        match event:
            case TimeSpent():
                self.time_spent = event
            case Chosen():
                self._say(event, "info", event.words)
            case Validation():
                self.validations.append(self.seconds(event), event)
                self._say(event, "info", _validation_words(event, self.task))
            case ClassMeasures():
                self.looks.add_classes(event)
            case Predicted():
                self.looks.add_predicted(event)
            case _:
                self._apply_milestone(event)

    def _apply_milestone(self, event: AnyEvent) -> None:
        match event:
            case Waiting():
                self.waiting, self._halted = event, True
                self._say(event, "info", _waiting_words(event))
            case PhaseChanged():
                self._enter(event)
            case Fetching():
                self.fetching = (*self.fetching[:1], event)
            case Planned():
                self._resume_from(event)
            case EpochStarted():
                self.epoch, self.restarting = event.epoch, None
            case CheckpointSaved():
                self.checkpoints[event.kind] = event
                self._say(event, "info", f"Saved the {event.kind} checkpoint to {event.path}")
            case Warned():
                before = self.warnings.pop(event.code, None)
                self.warnings[event.code] = Warnings(before.count + 1 if before is not None else 1, event)
                self.unsaved |= event.code == "unsaved"
                self._say(event, "warning", event.message)
            case EventsLost():
                self._say(event, "warning", f"{event.count} events are missing here: {event.reason}")
            case _:
                self._apply_ending(event)

    def _apply_ending(self, event: AnyEvent) -> None:
        match event:
            case Failed():
                # What fails first is the cause; what other ranks say after it follows from it.
                self.failure = self.failure or event
                self._say(event, "error", event.cause)
            case Restarting():
                self._restart(event)
            case CommandReceived():
                if event.command in ("pause", "stop") and self.asked != "stop":
                    self.asked = "stop" if event.command == "stop" else "pause"
                self._say(event, "info", f"Asked to {event.command.replace('_', ' ')}")
            case DevicesFree():
                self.devices_free = event
                seen = "" if event.verified else " (the workers have exited; GPU memory could not be checked)"
                self._say(event, "info", f"Devices are free{seen}")
            case Verdict():
                self.verdict = event
                self._say(event, "info", event.sentence)
            case RunFinished():
                self.finished, self.unsaved = event, False
                self._say(event, "error" if event.outcome in ("failed", "unsaved") else "info", _ENDINGS[event.outcome])

    def _start(self, event: RunStarted) -> None:
        """Another execution begins. Its curves go on; what was true of the workers before is not any more."""
        self.started = event
        self.executions += 1
        self.device_names |= {device.id: device.name for device in event.devices}
        self.phase, self.phase_detail, self.epoch, self.asked, self.fetching = None, "", 0, "", ()
        self.finished = self.devices_free = self.failure = self.waiting = self.restarting = None
        self.trace = self.rank_times = self.time_spent = self.verdict = None
        self.fresh_from = len(self.steps.step)
        self.unsaved = False
        self._entered.clear()
        with_workers = f"with {_workers(event.world_size)}"
        if self.executions == 1:
            self._say(event, "info", f"Run {event.run_id} started {with_workers}")
        else:
            since = duration(max(0.0, event.time - self.last_time))
            self._say(event, "info", f"Run {event.run_id} resumed {with_workers} after {since}")

    def _restart(self, event: Restarting) -> None:
        self.restarting, self.failure, self.unsaved = event, None, False
        if event.devices and self.started is not None:
            job = self.started.job.with_fields(
                devices=event.devices,
                strategy=event.changes.get("strategy", self.started.job.parallel.strategy),
            )
            self.started = structs.replace(self.started, job=job, world_size=len(event.devices))
        # A worker that was killed could not say where it was.
        self.restarts.append(structs.replace(event, step=self.step) if event.step is None else event)
        self._entered.clear()
        self._say(event, "warning", _restart_words(event))

    def _resume_from(self, plan: Planned) -> None:
        """What was told of steps after the plan's first is void: they are made again."""
        self.plan, self.restarting = plan, None
        self.step = plan.from_step
        self.epoch = min(plan.epochs, plan.from_step // max(1, plan.steps_per_epoch) + 1) if plan.from_step else 0
        # All of them are cut, whichever of them has an end to lose.
        cut = [part.cut(plan.from_step) for part in (self.steps, self.validations, self.looks)]
        self.cuts += any(cut)
        for device in self.devices.values():
            device.go_back(plan.from_step)
        self.fresh_from = len(self.steps.step)
        if plan.shares:
            self._say(plan, "info", shares_words(plan.shares))

    def _enter(self, event: PhaseChanged) -> None:
        """Every epoch validates and saves; the log tells of a phase once, unless there is more to say of it."""
        self.phase, self.phase_detail, self.fetching = event.phase, event.detail, ()
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


def attempt_words(event: Restarting) -> str:
    """ "attempt 1 of 3", or what is different from now on: "accumulation 4"."""
    devices = [counted(len(event.devices), "device")] if event.devices else []
    changes = [*devices, *([changes_words(event.changes)] if event.changes else [])]
    return ", ".join(changes) or f"attempt {event.attempt} of {event.most}"


def _restart_words(event: Restarting) -> str:
    return f"Restarting from the last checkpoint ({attempt_words(event)}): {event.cause}"


def _waiting_words(event: Waiting) -> str:
    if event.held:
        return f"Waiting in the queue at position {event.position}, on hold"
    reasons = [f"behind {', '.join(event.behind)}"] if event.behind else []
    return ", ".join([f"Waiting in the queue at position {event.position}", *reasons, *event.others])


def _workers(world_size: int) -> str:
    return "one worker" if world_size == 1 else f"{world_size} workers"


def _validation_words(event: Validation, task: str) -> str:
    measures = ", ".join(f"{name} {_written(task, name, value)}" for name, value in event.measures.items())
    return f"Validation after epoch {event.epoch}: {measures}"


def _written(task: str, name: str, value: float) -> str:
    measure = find_measure(task, name)
    return f"{localised(100 * value, 2)} %" if measure is not None and measure.percent else localised(value, 4)
