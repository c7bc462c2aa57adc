"""Runs to compare, as the engine writes them, and how to read one at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

from engine.contract.devices import DeviceSample
from engine.contract.events import AnyEvent, DevicesSampled, Outcome, StepMetrics, Validation
from engine.runs.folder import RunFolder, create_run
from gui.compare.compared_run import ComparedRun
from gui.compare.log_loader import read_run
from tests.gui.sources.written_runs import job, story, write

Change = Callable[[AnyEvent], None]


def nothing(_event: AnyEvent) -> None:
    return


def run_of(
    steps: int = 40, outcome: Outcome | None = "completed", change: Change = nothing, **fields: object
) -> RunFolder:
    """A run whose job has `fields`, and whose events have gone through `change`."""
    chosen = job(**fields)
    run = create_run(chosen)

    def events() -> Iterator[AnyEvent]:
        for event in story(chosen, steps, outcome):
            change(event)
            yield event

    write(run.events_file, events())
    os.utime(run.job_file, (0, 0))  # long ago, so that one without an end is no run that is starting
    return run


def compared(run: RunFolder, place: int = 0) -> ComparedRun:
    read = read_run(place, run, threading.Event())
    assert read is not None
    return read


def drawing(watts: float) -> Change:
    """Has the devices draw so much power."""

    def change(event: AnyEvent) -> None:
        if isinstance(event, DevicesSampled):
            event.samples = tuple(DeviceSample(device=each.device, power_w=watts) for each in event.samples)

    return change


def validating(*top1: float) -> Change:
    """Has the validations find these accuracies, one after the other."""
    left = list(top1)

    def change(event: AnyEvent) -> None:
        if isinstance(event, Validation):
            event.measures = {"loss": 1 - (value := left.pop(0)), "top1": value}

    return change


def at(images_per_second: float) -> Change:
    def change(event: AnyEvent) -> None:
        if isinstance(event, StepMetrics):
            event.images_per_second = images_per_second if event.step > 1 else 1.0

    return change
