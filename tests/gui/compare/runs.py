"""Builders of runs with logs, for the comparison of runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

from engine.contract.devices import DeviceSample
from engine.contract.events import AnyEvent, DevicesSampled, Outcome, Validation
from engine.runs.folder import RunFolder, create_run
from gui.compare.compared_run import ComparedRun, read_run
from tests.gui.sources.written_runs import job, list_run_events, write

Change = Callable[[AnyEvent], None]


def keep_event(_event: AnyEvent) -> None:
    return


def make_run(
    steps: int = 40, outcome: Outcome | None = "completed", change: Change = keep_event, **fields: object
) -> RunFolder:
    """Create a run with `steps` steps that ended with `outcome`. If `outcome` is None, it is interrupted.

    `change` modifies each event before it is written. `fields` are fields of the job.
    """
    chosen = job(**fields)
    run = create_run(chosen)

    def events() -> Iterator[AnyEvent]:
        for event in list_run_events(chosen, steps, outcome):
            change(event)
            yield event

    write(run.events_file, events())
    os.utime(run.job_file, (0, 0))  # an old run without an end is interrupted, not starting
    return run


def load_run(run: RunFolder, series: int = 0) -> ComparedRun:
    read = read_run(series, run, threading.Event())
    assert read is not None
    return read


def make_power_change(watts: float) -> Change:
    """Return a `change` for `make_run` that sets the power in watts in all device samples."""

    def change(event: AnyEvent) -> None:
        if isinstance(event, DevicesSampled):
            event.samples = tuple(DeviceSample(device=each.device, power_w=watts) for each in event.samples)

    return change


def make_accuracy_change(*top1: float) -> Change:
    """Return a `change` for `make_run` that sets the top-1 accuracies of the validations, in order."""
    remaining = list(top1)

    def change(event: AnyEvent) -> None:
        if isinstance(event, Validation):
            event.measures = {"loss": 1 - (value := remaining.pop(0)), "top1": value}

    return change
