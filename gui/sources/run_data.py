"""Events of a run, sorted into arrays that plots use without copying."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from msgspec import structs

from engine.contract.catalogue import Measure
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
from engine.system.format import duration
from engine.system.plain_text import shorten_texts
from gui.format import metric_value
from gui.sources.run_intervals import QUEUE_EVENTS
from gui.sources.run_series import DeviceColumns, Steps, ValidationDetails, Validations
from gui.titles import describe_attempt
from gui.translation import tr

LineKind = Literal["debug", "info", "warning", "error"]


_ENDINGS: dict[Outcome, str] = {
    "completed": tr("The run completed"),
    "paused": tr("The run was paused"),
    "stopped": tr("The run was stopped"),
    "failed": tr("The run failed"),
    "unsaved": tr("The run's last state could not be saved"),
}


@dataclass(frozen=True)
class Line:
    """Line of the displayed log. `seconds` is in the run's time (see `RunData`)."""

    seconds: float
    kind: LineKind
    text: str


EndRequest = Literal["", "pause", "stop"]
"""Pending request to pause or stop a run."""


@dataclass(frozen=True)
class RepeatedWarning:
    """Newest of several warnings with the same code, and the number of these warnings."""

    count: int
    newest: Warned


@dataclass
class RunData:
    """All events of a run, applied in order.

    The run's time counts seconds from its first event, excluding the time between executions and in the queue. A pause
    overnight therefore doesn't appear as a flat line in the curves.
    """

    started: RunStarted | None = None
    """First event of the newest execution, whose job and devices may differ from those of earlier ones."""
    executions: int = 0
    device_names: dict[str, str] = field(default_factory=dict)
    """Names of the devices in all executions, by id."""
    plan: Planned | None = None
    phase: Phase | None = None
    phase_detail: str = ""
    epoch: int = 0
    step: int = 0
    """Last valid step of this run, or of the run whose checkpoint it started from."""
    last_number: int = 0
    last_time: float = 0.0
    steps: Steps = field(default_factory=Steps)
    current_attempt_start: int = 0
    """Index in `steps` of the first step that the current workers have logged."""
    rollbacks: int = 0
    """Number of times that the run returned to a checkpoint, which shortened its curves."""
    validations: Validations = field(default_factory=Validations)
    validation_details: ValidationDetails = field(default_factory=ValidationDetails)
    devices: dict[str, DeviceColumns] = field(default_factory=dict)
    trace: ScheduleTraced | None = None
    """Latest trace of the pipeline schedule."""
    rank_times: RanksTimed | None = None
    time_spent: TimeSpent | None = None
    lines: list[Line] = field(default_factory=list)
    warnings: dict[str, RepeatedWarning] = field(default_factory=dict)
    """Warnings by code, the latest one last."""
    checkpoints: dict[str, CheckpointSaved] = field(default_factory=dict)
    waiting: Waiting | None = None
    """Queue position of a queued run."""
    fetching: tuple[Fetching, ...] = ()
    """First and latest progress message of a download of weights. It is empty after the download."""
    restarting: Restarting | None = None
    """Current restart, or None once the new workers have planned their steps."""
    restarts: list[Restarting] = field(default_factory=list)
    failure: Failed | None = None
    devices_free: DevicesFree | None = None
    verdict: Verdict | None = None
    finished: RunFinished | None = None
    unsaved: bool = False
    """True while the last state exists only in memory because the disk can't store it."""
    end_request: EndRequest = ""
    _logged_phases: set[Phase] = field(default_factory=set)
    """Phases that the current workers have entered, each of which has a line."""
    _origin: float = 0.0
    """Start of the run's time in seconds since the epoch. It moves forward with every pause."""
    _is_clock_stopped: bool = True
    """True if the time until the next event is not part of the run's time, as in the queue."""

    @property
    def task(self) -> str:
        """Id of the task, or "" before the run has logged its job."""
        return self.started.job.task if self.started is not None else ""

    @property
    def has_checkpoint(self) -> bool:
        """Return True if the run can continue from a checkpoint, its own or that of the run it was forked from.

        The best weights don't suffice.
        """
        is_fork = self.started is not None and self.started.job.checkpoints.resume_from != ""
        return is_fork or "last" in self.checkpoints

    def find_measure(self, name: str) -> Measure | None:
        """Return the description of a metric, from the run or from the catalogue, or None if it is unknown."""
        described = self.plan.metrics if self.plan is not None else ()
        return find_measure(self.task, name, described)

    def seconds(self, event: AnyEvent) -> float:
        """Return the run's time at `event`, which must be the newest event."""
        return event.time - self._origin

    def apply(self, event: AnyEvent) -> None:
        """Add the next event to the data, unless it has been applied before."""
        self.apply_all((event,))

    def apply_all(self, events: Sequence[AnyEvent]) -> None:
        """Apply several events, except those that have been applied before.

        Numbers are added in batches, which makes reading a long log four times as fast.
        """
        steps: list[StepMetrics] = []
        sampled: dict[str, list[tuple[float, float, DeviceSample]]] = {}
        for event in events:
            if event.n <= self.last_number:
                continue
            if self._is_clock_stopped or type(event) is RunStarted:
                self._add_numbers(steps, sampled)  # with the origin of their time, which is about to change
                self._exclude_time_until(event)
            self.last_number = event.n
            if type(event) is StepMetrics:
                steps.append(event)
                self.epoch, self.step = event.epoch, event.step
            elif type(event) is DevicesSampled:
                for sample in event.samples:
                    sampled.setdefault(sample.device, []).append((self.seconds(event), self.step, sample))
            else:
                if type(event) is Planned:
                    self._add_numbers(steps, sampled)  # the plan may remove them again
                self._apply_other(event)
            self.last_time = event.time
        self._add_numbers(steps, sampled)

    def _add_numbers(
        self, steps: list[StepMetrics], sampled: dict[str, list[tuple[float, float, DeviceSample]]]
    ) -> None:
        """Append step metrics and device samples to their columns, and clear both arguments.

        `sampled` contains samples by device, each with its time and step.
        """
        if steps:
            self.steps.extend(steps, self._origin)
            steps.clear()
        for device, samples in sampled.items():
            self.devices.setdefault(device, DeviceColumns()).extend(samples)
        sampled.clear()

    def _exclude_time_until(self, event: AnyEvent) -> None:
        """Exclude the time between the previous event and `event` from the run's time.

        Unless `event` is about the queue, the clock runs again afterwards, and the run no longer waits.
        """
        if self.last_number:
            self._origin += event.time - self.last_time
        else:
            self._origin = event.time  # the first event
        if not isinstance(event, QUEUE_EVENTS):
            self._is_clock_stopped = False
            self.waiting = None

    def _apply_other(self, event: AnyEvent) -> None:
        """Apply any event except `StepMetrics` and `DevicesSampled`."""
        match event:
            case ScheduleTraced():
                self.trace = event
            case RanksTimed():
                self.rank_times = event
            case LogLine():
                rank = tr("[rank {rank}] ").format(rank=event.rank) if event.rank is not None else ""
                self._add_line(event, event.level, f"{rank}{event.text}")
            case RunStarted():
                # The job is not only displayed, so its texts are not shortened.
                self._apply_start(structs.replace(shorten_texts(event), job=event.job))
            case _:
                self._apply_result_event(shorten_texts(event))

    def _apply_result_event(self, event: AnyEvent) -> None:
        """Apply step times, an automatic choice, or the results of a validation.

        Other events are passed to `_apply_progress_event`.
        """
        match event:
            case TimeSpent():
                self.time_spent = event
            case Chosen():
                self._add_line(event, "info", event.text)
            case Validation():
                self.validations.append(self.seconds(event), event)
                self._add_line(event, "info", self._describe_validation(event))
            case ClassMeasures():
                self.validation_details.add_classes(event)
            case Predicted():
                self.validation_details.add_predicted(event)
            case _:
                self._apply_progress_event(event)

    def _apply_progress_event(self, event: AnyEvent) -> None:
        """Apply a queue position, phase, download, plan, epoch, checkpoint, warning or note on lost events.

        Other events are passed to `_apply_ending_event`.
        """
        match event:
            case Waiting():
                self.waiting, self._is_clock_stopped = event, True
                self._add_line(event, "info", _describe_waiting(event))
            case PhaseChanged():
                self._apply_phase(event)
            case Fetching():
                self.fetching = (*self.fetching[:1], event)  # the first and the latest
            case Planned():
                self._apply_plan(event)
            case EpochStarted():
                self.epoch = event.epoch
            case CheckpointSaved():
                self.checkpoints[event.kind] = event
                self._add_line(
                    event, "info", tr("Saved the {kind} checkpoint to {path}").format(kind=event.kind, path=event.path)
                )
            case Warned():
                previous = self.warnings.pop(event.code, None)  # so that the new entry is the last one
                count = previous.count + 1 if previous is not None else 1
                self.warnings[event.code] = RepeatedWarning(count, event)
                self.unsaved |= event.code == "unsaved"
                self._add_line(event, "warning", event.message)
            case EventsLost():
                text = (
                    tr("1 event is missing here: {reason}")
                    if event.count == 1
                    else tr("{count} events are missing here: {reason}")
                )
                self._add_line(event, "warning", text.format(count=event.count, reason=event.reason))
            case _:
                self._apply_ending_event(event)

    def _apply_ending_event(self, event: AnyEvent) -> None:
        """Apply a failure, a restart, a command, the release of the devices, the verdict, or the end of the run.

        The verdict is a diagnosis of the finished run. A requested stop overrides a requested pause.
        """
        match event:
            case Failed():
                # The first failure is the cause. Later failures of other ranks are its consequences.
                self.failure = self.failure or event
                self._add_line(event, "error", event.cause)
            case Restarting():
                self._apply_restart(event)
            case CommandReceived():
                if event.command in ("pause", "stop") and self.end_request != "stop":
                    self.end_request = "stop" if event.command == "stop" else "pause"
                self._add_line(event, "info", tr("Asked to {replace}").format(replace=event.command.replace("_", " ")))
            case DevicesFree():
                self.devices_free = event
                text = (
                    tr("Devices are free")
                    if event.verified
                    else tr("Devices are free (the workers have exited; GPU memory could not be checked)")
                )
                self._add_line(event, "info", text)
            case Verdict():
                self.verdict = event
                self._add_line(event, "info", event.sentence)
            case RunFinished():
                self.finished, self.unsaved = event, False
                self._add_line(
                    event, "error" if event.outcome in ("failed", "unsaved") else "info", _ENDINGS[event.outcome]
                )

    def _apply_start(self, event: RunStarted) -> None:
        """Begin another execution: continue the curves, and clear the state of the previous workers."""
        self.started = event
        self.executions += 1
        self.device_names |= {device.id: device.name for device in event.devices}
        self.phase, self.phase_detail, self.epoch, self.end_request, self.fetching = None, "", 0, "", ()
        self.finished = self.devices_free = self.failure = self.waiting = self.restarting = None
        self.trace = self.rank_times = self.time_spent = self.verdict = None
        self.current_attempt_start = len(self.steps.step)
        self.unsaved = False
        self._logged_phases.clear()
        workers = _count_workers(event.world_size)
        if self.executions == 1:
            self._add_line(
                event,
                "info",
                tr("Run {run_id} started with {workers}").format(run_id=event.run_id, workers=workers),
            )
        else:
            since = duration(max(0.0, event.time - self.last_time))
            self._add_line(
                event,
                "info",
                tr("Run {run_id} resumed with {workers} after {since}").format(
                    run_id=event.run_id, workers=workers, since=since
                ),
            )

    def _apply_restart(self, event: Restarting) -> None:
        """Record a restart of the workers, which may have fewer devices or another strategy."""
        self.restarting, self.failure, self.unsaved = event, None, False
        if event.devices and self.started is not None:
            job = self.started.job.with_fields(
                devices=event.devices,
                strategy=event.changes.get("strategy", self.started.job.parallel.strategy),
            )
            self.started = structs.replace(self.started, job=job, world_size=len(event.devices))
        # A killed worker couldn't report its position.
        self.restarts.append(structs.replace(event, step=self.step) if event.step is None else event)
        self._logged_phases.clear()
        self._add_line(event, "warning", _describe_restart(event))

    def _apply_plan(self, plan: Planned) -> None:
        """Set the plan, and continue after its `from_step`. Remove later values, since the workers repeat these steps."""
        self.plan, self.restarting = plan, None
        self.step = plan.from_step
        self.epoch = 0  # a run from scratch has not entered its first epoch
        if plan.from_step:
            completed_epochs = plan.from_step // max(1, plan.steps_per_epoch)
            self.epoch = min(plan.epochs, completed_epochs + 1)
        # A list, since all of them must be cut, even if the first has nothing to remove.
        shortened = [columns.cut(plan.from_step) for columns in (self.steps, self.validations, self.validation_details)]
        self.rollbacks += any(shortened)
        for device in self.devices.values():
            device.return_to_step(plan.from_step)
        self.current_attempt_start = len(self.steps.step)
        if plan.shares:
            self._add_line(plan, "info", _describe_batch_shares(plan.shares))

    def _describe_validation(self, event: Validation) -> str:
        """Return the log's line about a validation, with its metrics."""
        measures = ", ".join(f"{name} {self._format_metric(name, value)}" for name, value in event.measures.items())
        return tr("Validation after epoch {epoch}: {measures}").format(epoch=event.epoch, measures=measures)

    def _format_metric(self, name: str, value: float) -> str:
        """Format a value of a metric, as a percentage if the metric is one."""
        measure = self.find_measure(name)
        return metric_value(value, percent=measure is not None and measure.percent, decimals=2)

    def _apply_phase(self, event: PhaseChanged) -> None:
        """Set the run's current phase. Log it if it is new or has details, because phases recur in every epoch."""
        self.phase, self.phase_detail, self.fetching = event.phase, event.detail, ()
        if event.detail:
            self._add_line(event, "info", f"{event.phase.capitalize()}: {event.detail}")
        elif event.phase not in self._logged_phases:
            self._add_line(event, "info", event.phase.capitalize())
        self._logged_phases.add(event.phase)

    def _add_line(self, event: AnyEvent, kind: LineKind, text: str) -> None:
        """Add a line with the severity `kind` to the displayed log. `event` must be the newest event."""
        self.lines.append(Line(self.seconds(event), kind, text))


def _describe_batch_shares(shares: tuple[float, ...]) -> str:
    """Describe how batches are divided, as in "Shares of each batch: 62%, 38%, by measured speed"."""
    return tr("Shares of each batch: {shares}, by measured speed").format(
        shares=", ".join(f"{100 * share:.0f}%" for share in shares)
    )


def _describe_restart(event: Restarting) -> str:
    """Return the log's line about a restart, with the attempt and the cause."""
    return tr("Restarting from the last checkpoint ({event}): {cause}").format(
        event=describe_attempt(event), cause=event.cause
    )


def _describe_waiting(event: Waiting) -> str:
    """Describe a queue position for the log, as in "Waiting in the queue at position 2, behind RUN"."""
    if event.held:
        return tr("Waiting in the queue at position {position}, on hold").format(position=event.position)
    reasons = [tr("behind {runs}").format(runs=", ".join(event.behind))] if event.behind else []
    text = tr("Waiting in the queue at position {position}").format(position=event.position)
    return ", ".join([text, *reasons, *event.others])


def _count_workers(world_size: int) -> str:
    """Return "one worker", or a number of workers."""
    return tr("one worker") if world_size == 1 else tr("{count} workers").format(count=world_size)
