"""Builders of runs with logs, for the comparison of runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

from engine.contract.devices import DeviceSample
from engine.contract.events import AnyEvent, DevicesSampled, Outcome, StepMetrics, Validation
from engine.runs.folder import RunFolder, create_run
from gui.compare.compared_run import ComparedRun, read_run
from tests.gui.sources.written_runs import job, story, write

Change = Callable[[AnyEvent], None]


def nothing(_event: AnyEvent) -> None:
    return


def run_of(
    steps: int = 40, outcome: Outcome | None = "completed", change: Change = nothing, **fields: object
) -> RunFolder:
    """Create a run whose job has the given fields, and whose events `change` has modified."""
    chosen = job(**fields)
    run = create_run(chosen)

    def events() -> Iterator[AnyEvent]:
        for event in story(chosen, steps, outcome):
            change(event)
            yield event

    write(run.events_file, events())
    os.utime(run.job_file, (0, 0))  # an old run without an end is interrupted, not starting
    return run


def load_run(run: RunFolder, series: int = 0) -> ComparedRun:
    read = read_run(series, run, threading.Event())
    assert read is not None
    return read


def drawing(watts: float) -> Change:
    """Return a function that sets the power draw in the device samples of a run's events."""

    def change(event: AnyEvent) -> None:
        if isinstance(event, DevicesSampled):
            event.samples = tuple(DeviceSample(device=each.device, power_w=watts) for each in event.samples)

    return change


def validating(*top1: float) -> Change:
    """Return a function that sets the accuracy of each validation in a run's events."""
    remaining = list(top1)

    def change(event: AnyEvent) -> None:
        if isinstance(event, Validation):
            event.measures = {"loss": 1 - (value := remaining.pop(0)), "top1": value}

    return change


def at_speed(images_per_second: float) -> Change:
    def change(event: AnyEvent) -> None:
        if isinstance(event, StepMetrics):
            event.images_per_second = images_per_second if event.step > 1 else 1.0

    return change
