"""Display a run's events in the terminal: a line for each event, and a status line with the progress."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TextIO

from engine.cli.terminal import StatusLine, print_lines
from engine.contract.catalogue import load_catalogue
from engine.contract.command import flags, resume_line
from engine.contract.events import (
    Advice,
    AnyEvent,
    CheckpointSaved,
    Chosen,
    DevicesFree,
    EpochStarted,
    EventsLost,
    Failed,
    Fetching,
    LogLine,
    PhaseChanged,
    Planned,
    Restarting,
    RunFinished,
    RunStarted,
    StepMetrics,
    TimeSpent,
    Validation,
    Verdict,
    Waiting,
    Warned,
    estimate_fetch_s,
)
from engine.contract.job import FIELDS
from engine.runs.folder import RunFolder
from engine.runs.metrics import find_measure
from engine.system.format import counted, duration, metric_value, shorten_list, size, speed

_BAR_WIDTH = 24
STEADY = 5
"""Number of times in a row that the same advice must be received before it is printed in the middle of an epoch."""


class ProgressDisplay:
    """Display that writes lines about a run's events to `out`, and a status line with its progress to `err`."""

    def __init__(self, run: RunFolder, out: TextIO, err: TextIO) -> None:
        self._run = run
        self._out = out
        self._line = StatusLine(err)
        self._total_steps = 0  # 0 before the plan is known
        self._epochs = 0
        self._sample_noun = "image"  # until the task is known
        self._first_step: StepMetrics | None = None  # first step of these workers
        self._epoch_start: float | None = None  # time of the last EpochStarted
        self._phase = ""
        self._fetching: tuple[Fetching, ...] = ()  # first and latest message of a download
        self._advice: Advice | None = None
        self._advice_count = 0  # number of times in a row that the advice was the same
        self._printed_advice: Advice | None = None  # last printed advice

    def show(self, event: AnyEvent) -> None:
        """Print the lines for an event, or update the status line with its progress."""
        if isinstance(event, StepMetrics):
            self._line.show(self._format_status(event))
            return
        if isinstance(event, Fetching):
            self._fetching = (*self._fetching[:1], event)
            self._line.show(_format_fetch(self._fetching))
            return
        if isinstance(event, EpochStarted):
            self._epoch_start = event.time
        self.print_lines(*self._format_event(event))
        if isinstance(event, PhaseChanged):
            self._phase = event.phase
        if isinstance(event, TimeSpent) and event.advice is not None:
            self._advice_count = self._advice_count + 1 if _suggest_same(event.advice, self._advice) else 1
            self._advice = event.advice
        if isinstance(event, Validation) or self._advice_count >= STEADY:
            self._print_advice()

    def _print_advice(self) -> None:
        """Print the latest advice on the bottleneck, unless it was the last one printed."""
        advice = self._advice
        if advice is None or _suggest_same(advice, self._printed_advice):
            return
        self._printed_advice = advice
        field = FIELDS.get(advice.field)
        next_time = f" Next time: {field.flag} {advice.value}" if field is not None else ""
        self.print_lines(f"{advice.sentence}{next_time}")

    def print_lines(self, *lines: str) -> None:
        """Print lines in place of the status line, which appears again with the next progress."""
        if lines:
            self._line.clear()
            print_lines(*lines, to=self._out)

    def _format_status(self, event: StepMetrics) -> str:
        """Format the progress of the training as a status line, with the remaining time.

        The time is estimated from the duration of the steps since the first call after the last `Planned` event. That
        call stores its event for later calls.
        """
        if self._first_step is None:
            self._first_step = event
        fraction = min(1.0, event.step / self._total_steps) if self._total_steps else 0.0
        steps, seconds = event.step - self._first_step.step, event.time - self._first_step.time
        left = None
        if steps > 0 and self._total_steps:
            left = seconds / steps * (self._total_steps - event.step)
        return (
            f"epoch {event.epoch}/{self._epochs or '?'} {_draw_bar(fraction)} {fraction:4.0%}  step {event.step}"
            f"  loss {event.loss:.4f}  {speed(event.images_per_second)}  {duration(left)} left"
        )

    def _format_event(self, event: AnyEvent) -> Sequence[str]:
        """Return the lines of text for an event, or () if it is not shown."""
        match event:
            case Restarting():
                return _format_restart(event)
            case Verdict():
                return _format_finding(event, self._run.run_id)
            case RunFinished():
                return self._format_end(event)
        text = self._format_single_line(event)
        return (text,) if text else ()

    def _format_single_line(self, event: AnyEvent) -> str:  # noqa: PLR0911, PLR0912  (one sentence per event)
        """Return the line of text for an event, or "" if the event is not shown as a single line.

        Events about the plan and downloads also change what the following status lines show.
        """
        match event:
            case RunStarted():
                self._sample_noun = load_catalogue().sample_noun(event.job.task)
                devices = ", ".join(f"{device.name} x{len(device.ranks)}" for device in event.devices)
                return f"{event.job.model.name}, {event.job.resolved_strategy}, on {devices}"
            case Waiting():
                return _format_queue_position(event)
            case PhaseChanged(phase="pausing" | "stopping" as phase):  # sent by the supervisor, then by the workers
                return "" if phase == self._phase else f"{phase.capitalize()}."
            case PhaseChanged(phase="fetching", detail=detail):
                self._fetching = ()
                return f"Fetching {detail}."
            case PhaseChanged(phase="preparing" | "starting", detail=detail):
                return detail
            case Planned():
                return self._on_plan(event)
            case Chosen():
                return event.text
            case Validation():
                text = f"epoch {event.epoch}: {_format_metrics(event.measures)}"
                return text if self._epoch_start is None else f"{text} ({duration(event.time - self._epoch_start)})"
            case CheckpointSaved(kind="best"):
                return f"  best model, saved as {event.path} ({size(event.bytes)})"
            case LogLine():
                rank = "" if event.rank is None else f"rank {event.rank}: "
                return f"{rank}{event.text}"
            case Warned():
                return f"Warning: {event.message}"
            case EventsLost():
                return f"{counted(event.count, 'event')} lost: {event.reason}"
            case Failed():
                return f"Failed: {event.cause}"
            case DevicesFree():
                return "The devices are free." if event.verified else "The devices may still be in use."
        return ""

    def _on_plan(self, event: Planned) -> str:
        """Store the numbers of steps and epochs of a started run, and return a line about its data and model."""
        is_restart = self._total_steps > 0
        self._total_steps, self._epochs = event.epochs * event.steps_per_epoch, event.epochs
        self._first_step = None
        if is_restart:
            return f"Training resumes after step {event.from_step:,}."
        image_size = f", {event.image_size} px" if event.image_size else ""
        classes = f", {counted(len(event.classes), 'class')}" if event.classes else ""
        return (
            f"{counted(event.train_images, self._sample_noun)} to train on, {event.val_images} to validate on"
            f"{classes}{image_size}; {event.parameters:,} parameters"
        )

    def _format_end(self, event: RunFinished) -> list[str]:
        """Return a line with the outcome and the best metrics of a run, then the paths of its checkpoints."""
        best = f" Best (epoch {event.best_epoch}): {_format_metrics(event.best)}." if event.best else ""
        text = f"{event.outcome.capitalize()} after {duration(event.seconds)}.{best}"
        if event.cause and event.outcome != "failed":  # the cause of a failure was shown with its `Failed` event
            text += f" {event.cause}"
        return [text, *(str(self._run.path / path) for path in event.checkpoints)]


def _format_fetch(events: Sequence[Fetching]) -> str:
    """Format the progress of a download, e.g. "████░░░░  42%  41.1 MiB of 97.8 MiB  3 s left".

    `events` are its first and latest event.
    """
    latest = events[-1]
    if not latest.total_bytes:
        return f"{size(latest.done_bytes)} of the weights"
    fraction = latest.done_bytes / latest.total_bytes
    left = duration(estimate_fetch_s(events))
    return (
        f"{_draw_bar(fraction)} {fraction:4.0%}  {size(latest.done_bytes)} of {size(latest.total_bytes)}  {left} left"
    )


def _draw_bar(fraction: float) -> str:
    filled = round(fraction * _BAR_WIDTH)
    return "█" * filled + "░" * (_BAR_WIDTH - filled)


def _format_queue_position(event: Waiting) -> str:
    """Format the queue position, e.g. "Queued at position 2, behind 20260101-120000-resnet18-1a2b"."""
    texts = [f"Queued at position {event.position}"]
    if event.held:
        texts.append("held until it is released")
    if event.behind:
        texts.append(f"behind {shorten_list(event.behind)}")
    return f"{', '.join([*texts, *event.others])} (`footplate queue` shows the queue)."


def _format_restart(event: Restarting) -> tuple[str, str]:
    """Return the cause of a restart, and a text such as "Restarting from the last checkpoint (1 of 3 in a row)"."""
    changes = [f"{FIELDS[name].label} {value}" for name, value in event.changes.items() if name in FIELDS]
    if event.devices:
        changes.insert(0, counted(len(event.devices), "device"))
    if changes:
        return event.cause, f"Restarting from the last checkpoint with {', '.join(changes)}."
    count = f"{event.attempt} of {event.max_attempts} in a row"
    return event.cause, f"Restarting from the last checkpoint ({count})."


def _format_finding(event: Verdict, run_id: str) -> tuple[str, ...]:
    """Return lines for a finding: its text, and a command or flags that apply its advice.

    The second line is left out if the advice changes fields that this version does not know.
    """
    if not event.changes or not event.changes.keys() <= FIELDS.keys():
        return (event.sentence,)
    if event.code == "falling":
        return event.sentence, f"  {resume_line(run_id, event.changes)}"
    return event.sentence, f"  Next time: {shlex.join(flags(event.changes))}"


def _suggest_same(advice: Advice, other: Advice | None) -> bool:
    """Return True if both pieces of advice suggest the same value of the same job field. Their sentences may differ."""
    return other is not None and (advice.field, advice.value) == (other.field, other.value)


def _format_metrics(metrics: dict[str, float]) -> str:
    """Format metrics with their ids, as in "loss 0.2134, top1 93.4%"."""
    texts = []
    for name, value in metrics.items():
        measure = find_measure("", name)  # of any task
        is_percent = measure is not None and measure.percent
        texts.append(f"{name} {metric_value(value, percent=is_percent)}")
    return ", ".join(texts)
