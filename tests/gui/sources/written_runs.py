"""Builders of run folders and events, in the format that the engine writes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.contract.devices import CPU, DeviceSample
from engine.contract.events import (
    ENCODE,
    AnyEvent,
    CheckpointSaved,
    DevicesFree,
    DevicesSampled,
    EpochStarted,
    Failed,
    LogLine,
    Outcome,
    PhaseChanged,
    Planned,
    RunDevice,
    RunFinished,
    RunStarted,
    StepMetrics,
    Validation,
    Warned,
)
from engine.contract.job import Job
from engine.runs.folder import RunFolder, SupervisorFile, create_run, process_start

NESTED_TOO_DEEP = f"a = {'[' * 5000}{']' * 5000}"
"""Valid TOML whose nesting exceeds the limit of the reader of job.toml."""
STEP_S = 0.1
EPOCHS = 4


def job(**changes: object) -> Job:
    return Job.from_fields(**({"dataset": "/data/flowers", "model": "resnet18", "epochs": EPOCHS} | changes))  # type: ignore[arg-type]


def write_run(
    steps: int = 40,
    outcome: Outcome | None = "completed",
    *,
    cause: str = "",
    **changes: object,
) -> RunFolder:
    """Write a run of `steps` steps that ended with `outcome`, with `cause` as the cause of a failure.

    If `outcome` is None, the log has no final event. `changes` are fields of the job.
    """
    chosen = job(**changes)
    run = create_run(chosen)
    write(run.events_file, list_run_events(chosen, steps, outcome, cause))
    return run


def append_events(run: RunFolder, *events: AnyEvent) -> None:
    """Append events to the log of `run`, after numbering them in order."""
    last = run.last_event()
    write(run.events_file, events, last.n + 1 if last is not None else 1)


def supervise_here(run: RunFolder, execution: int = 1, endpoint: str = "unix:/nowhere") -> RunFolder:
    """Register this process as the supervisor of `run` in its execution number `execution`, and return `run`.

    The run then counts as active.
    """
    pid = os.getpid()
    file = SupervisorFile(pid=pid, start_time=process_start(pid), endpoint=endpoint, execution=execution)
    run.write_supervisor(file)
    return run


def make_plan(**changes: object) -> Planned:
    """Return the plan of a run with two classes and four epochs of ten steps. `changes` override its fields."""
    values: dict[str, object] = {
        "epochs": EPOCHS, "steps_per_epoch": 10, "train_images": 320, "val_images": 20, "classes": ("daisy", "rose"),
        "image_size": 64, "parameters": 1000, "trainable_parameters": 1000,
    }  # fmt: skip
    return Planned(**(values | changes))  # type: ignore[arg-type]


def write(path: Path, events: Iterable[AnyEvent], first_n: int = 1) -> None:
    with path.open("ab") as stream:
        for n, event in enumerate(events, first_n):
            event.n = n
            stream.write(ENCODE.encode(event) + b"\n")


def list_run_events(
    chosen: Job,
    steps: int,
    outcome: Outcome | None,
    cause: str = "",
    *,
    begun: float | None = None,
    from_step: int = 0,
    execution: int = 1,
) -> Iterator[AnyEvent]:
    """Yield the events of a run of `steps` steps over `EPOCHS` epochs, with a step every `STEP_S`.

    If `from_step` isn't 0, they are the events of an execution that resumes after this step. `begun` is the start time,
    an hour ago by default. `outcome` and `cause` are those of the final event, which is left out if `outcome` is None.
    """
    begun = time.time() - 3600 if begun is None else begun
    per_epoch = max(1, steps // EPOCHS)
    ids = tuple(dict.fromkeys(chosen.parallel.devices))
    yield RunStarted(
        time=begun,
        run_id="a-run",
        job=chosen,
        devices=tuple(RunDevice(id=i, name="AMD EPYC" if i == CPU else "NVIDIA H200", ranks=(0,)) for i in ids),
        world_size=len(chosen.parallel.devices),
        environment={"torch": "2.15"},
        supervisor_pid=1,
        execution=execution,
    )
    yield PhaseChanged(time=begun, phase="preparing")
    yield make_plan(time=begun, from_step=from_step, steps_per_epoch=per_epoch, train_images=8 * steps)
    yield PhaseChanged(time=begun, phase="training")
    yield Warned(time=begun, code="unreadable", message="3 images could not be read and are left out")
    for step in range(from_step + 1, steps + 1):
        now = begun + (step - from_step) * STEP_S
        epoch = (step - 1) // per_epoch + 1
        if (step - 1) % per_epoch == 0:
            yield EpochStarted(time=now, epoch=epoch)
        yield StepMetrics(
            time=now, epoch=epoch, step=step, loss=2 * math.exp(-step / steps), accuracy=step / steps,
            learning_rate=0.01, images_per_second=800 + step, data_wait_s=0.002, compute_s=0.04,
        )  # fmt: skip
        if step % 10 == 0:
            samples = (DeviceSample(device=i, utilization_percent=90.0, memory_used_bytes=3 << 30) for i in ids)
            yield DevicesSampled(time=now, samples=tuple(samples))
        if step % per_epoch == 0:
            measures = {"loss": 0.5, "top1": 0.8, "top5": 0.99}
            yield Validation(time=now, epoch=epoch, step=step, measures=measures, images=20, seconds=1)
            for kind in ("last", "best"):
                yield CheckpointSaved(
                    time=now, kind=kind, path=f"checkpoints/{kind}.pt", epoch=epoch, step=step, bytes=45_000_000, seconds=0.1
                )  # fmt: skip
    end = begun + (steps - from_step) * STEP_S + 1
    yield LogLine(time=end, text="That was all")
    if outcome == "failed":
        yield Failed(time=end, cause=cause, rank=0, step=steps)
    if outcome is not None:
        yield DevicesFree(time=end, seconds=0.4, verified=True)
        yield RunFinished(
            time=end, outcome=outcome, execution=execution, cause=cause, seconds=end - begun,
            best={"top1": 0.8, "loss": 0.5}, best_epoch=3,
        )  # fmt: skip
