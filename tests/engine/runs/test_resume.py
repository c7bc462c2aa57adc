"""Resuming of runs: fields of the job that may change, and the checkpoint to resume from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from engine.contract.catalogue import load_catalogue
from engine.contract.events import ENCODE, AnyEvent, LogLine, PhaseChanged, RunFinished, RunStarted, Waiting
from engine.contract.job import FIELDS, Job
from engine.contract.options import list_options, option
from engine.runs.folder import RunFolder, SupervisorFile, create_run, process_start
from engine.runs.index import mirror_folder
from engine.runs.notes import change_notes, read_notes
from engine.runs.resume import CHANGEABLE, checkpoint_of, job_to_resume, last_execution, save_next_job
from engine.system import paths
from tests.gui.sources.written_runs import EPOCHS, append_events, write_run


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    width: Annotated[int, option("Width", "Channels.")] = 8
    depth: Annotated[int, option("Depth", "Layers.")] = 1
    heads: Annotated[int, option("Heads", "Heads.")] = 1
    bias: Annotated[bool, option("Bias", "Whether there is one.")] = True
    rate: Annotated[float, option("Rate", "Dropout.", resume=True)] = 0.1


def register_supervisor(run: RunFolder, *, alive: bool, execution: int = 1) -> RunFolder:
    """Register a supervisor of `run` for its execution number `execution`, and return `run`.

    The supervisor is this process if `alive`, otherwise a process that has exited.
    """
    supervisor_start = process_start(os.getpid()) - (0 if alive else 1000)
    content = SupervisorFile(
        pid=os.getpid(), start_time=supervisor_start, endpoint="unix:/nowhere", execution=execution
    )
    run.write_supervisor(content)
    return run


def test_changeable_fields() -> None:
    stays = {
        "dataset", "task", "model", "batch_size", "optimizer", "learning_rate", "weight_decay", "schedule", "clip_norm",
        "ema_decay", "seed", "best_by", "resume_from", "image_size", "augmentation", "val_fraction", "deterministic",
        "pretrained", "weights_file", "freeze_epochs", "loss", "encoder", "class_weights",
        "label_smoothing", "mixup", "cutmix", "oversample", "ignore_value", "points", "recipe", "momentum", "beta2",
        "nesterov", "optimizer_kernel", "decay_norms", "layer_decay", "head_rate", "milestones", "final_rate",
        "warmup_epochs", "warmup_steps", "warmup_start", "ema_ramp", "progressive_from", "multi_scale", "val_crop", "transforms",
        "mirror", "freeze_batchnorm", "dropout", "stochastic_depth", "fold", "format",
    }  # fmt: skip
    assert FIELDS.keys() - CHANGEABLE == stays
    assert FIELDS.keys() >= CHANGEABLE


@pytest.mark.parametrize("outcome", ["paused", "stopped", "failed", None])
def test_resume_accepts_changeable_fields(outcome: str | None) -> None:
    run = register_supervisor(write_run(8, outcome, epochs=EPOCHS), alive=False)  # type: ignore[arg-type]
    before = run.job()
    assert job_to_resume(run, {}) == (before, [])
    job, problems = job_to_resume(
        run, {"devices": ["cpu", "cpu"], "strategy": "ddp", "cpu_threads": None, "epochs": 9, "transforms": []}
    )
    assert problems == []
    assert job is not None
    assert (job.parallel.devices, job.parallel.strategy, job.training.epochs) == (("cpu", "cpu"), "ddp", 9)
    assert run.job() == before
    change_notes(run.path, set_aside=True)
    save_next_job(run, job)
    assert (run.job(), read_notes(run.path).set_aside) == (job, False)


def test_resume_reports_all_problems() -> None:
    run = register_supervisor(write_run(8, "stopped", seed=3), alive=False)
    before = run.job_file.read_bytes()
    changes = {
        "seed": 4,
        "batch_size": 16,
        "epochs": 0,
        "strategi": "ddp",
        "optimizer": "sgd",
        "devices": ["cpu"],
        "val_fraction": 7,
    }
    job, problems = job_to_resume(run, changes)
    assert job is None
    assert sorted(problem.field for problem in problems) == ["batch_size", "epochs", "seed", "strategi", "val_fraction"]
    assert "a different training" in next(str(problem) for problem in problems if problem.field == "seed")
    assert run.job_file.read_bytes() == before


def test_options_cannot_be_added_changed_or_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = load_catalogue()
    model = shipped.model("resnet18")
    assert model is not None
    replaced = msgspec.structs.replace(model, options=list_options(Options))
    monkeypatch.setattr(
        "engine.runs.resume.load_catalogue", lambda: msgspec.structs.replace(shipped, models=(replaced,))
    )
    run = write_run(8, "stopped", options={"width": 4, "depth": 3, "rate": 0.5, "bias": False})
    _, problems = job_to_resume(run, {"options": {"depth": 2, "heads": 2, "rate": 0.25, "bias": False}})
    assert [problem.field for problem in problems] == ["options.depth", "options.heads", "options.width"]


def test_run_of_another_machine_is_resumed_there() -> None:
    run = mirror_folder("node1", "20260101-000000-net-abcd")
    write_run(8, "stopped").path.rename(paths.make_private_folder(run.path.parent) / run.run_id)
    job, (problem,) = job_to_resume(run, {})
    assert (job, problem.field) == (None, "run")
    assert problem.remedy.endswith(f"ssh -t node1 footplate resume {run.run_id}")


def test_completed_run_resumes_only_with_more_epochs() -> None:
    run = register_supervisor(write_run(8, epochs=EPOCHS), alive=False)
    for epochs in ({}, {"epochs": EPOCHS}, {"epochs": EPOCHS - 1}):
        job, (problem,) = job_to_resume(run, epochs)
        assert job is None
        assert problem.field == "epochs"
        assert f"Set more than {EPOCHS} epochs" in problem.remedy
    assert [problem.field for problem in job_to_resume(run, {"epochs": 0})[1]] == ["epochs"]
    job, problems = job_to_resume(run, {"epochs": EPOCHS + 1})
    assert problems == []
    assert job is not None
    assert job.training.epochs == EPOCHS + 1


def start(n: int, time: float, **fields: Any) -> RunStarted:
    values = {"run_id": "run", "job": Job(), "devices": (), "world_size": 1, "environment": {}, "supervisor_pid": 1}
    return RunStarted(n=n, time=time, **(values | fields))  # type: ignore[arg-type]


QUEUED = (
    start(1, 1000.0),
    PhaseChanged(n=2, time=1000.0, phase="starting"),
    Waiting(n=3, time=1001.0, position=1),
    PhaseChanged(n=4, time=1100.0, phase="training"),
    RunFinished(n=5, time=1110.0, outcome="paused"),
    start(6, 2000.0, execution=2, worked_s=10.0),
    Waiting(n=7, time=2001.0, position=1),
    PhaseChanged(n=8, time=2100.0, phase="training"),
    RunFinished(n=9, time=2120.0, outcome="completed", execution=2),
)
RESUMED = (
    start(1, 1000.0),
    RunFinished(n=2, time=1060.0, outcome="paused"),
    start(3, 9000.0, execution=2, worked_s=60.0),
    RunFinished(n=4, time=9030.0, outcome="completed", execution=2),
)


@pytest.mark.parametrize(
    ("messages", "expected"), [(QUEUED, {3: 0.0, 5: 10.0, 7: 10.0, 9: 30.0}), (RESUMED, {2: 60.0, 3: 60.0, 4: 90.0})]
)
def test_worked_s_excludes_queue_and_pauses(messages: Sequence[AnyEvent], expected: dict[int, float]) -> None:
    run = create_run(Job())
    for count, seconds in expected.items():
        run.events_file.write_bytes(b"".join(ENCODE.encode(event) + b"\n" for event in messages[:count]))
        assert run.worked_s() == seconds
    assert (run.summary().started, run.summary().seconds) == (1000.0, seconds)


@pytest.mark.parametrize("has_ended", [False, True])
def test_worked_s_excludes_the_queue_before_a_long_log(has_ended: bool) -> None:
    run = create_run(Job())
    lines = [LogLine(n=n, time=9030.0, text="x" * 60_000) for n in range(5, 80)]  # more than the end that is read first
    messages: list[AnyEvent] = [
        *RESUMED[:3],
        Waiting(n=4, time=9001.0, position=1),
        *lines,
    ]
    if has_ended:
        messages.append(RunFinished(n=80, time=9040.0, outcome="completed", execution=2))
    else:
        run.write_supervisor(SupervisorFile(pid=1, start_time=0.0, endpoint="unix:/nowhere", execution=2))
    run.events_file.write_bytes(b"".join(ENCODE.encode(event) + b"\n" for event in messages))
    assert run.worked_s() == 60.0 + 10.0 * has_ended


def test_running_run_cannot_be_resumed() -> None:
    run = register_supervisor(write_run(8, None), alive=True)
    job, (problem,) = job_to_resume(run, {})
    assert job is None
    assert "it is running" in problem.message
    assert problem.remedy
    append_events(run, Waiting(position=1))
    assert [problem.field for problem in job_to_resume(run, {})[1]] == ["run"]
    register_supervisor(a := write_run(8, "paused"), alive=True, execution=2)
    assert [problem.field for problem in job_to_resume(a, {})[1]] == ["run"], "its next execution has begun"


def test_resume_with_unreadable_job() -> None:
    run = register_supervisor(write_run(8, "stopped"), alive=False)
    run.job_file.write_text("training.epochs = 'many'\n")
    job, problems = job_to_resume(run, {"epochs": 9})
    assert job is None
    assert [problem.field for problem in problems] == ["epochs"]


def test_checkpoint_of_prefers_last_checkpoint(tmp_path: Path) -> None:
    assert checkpoint_of(write_run(8, "stopped")) is None
    assert checkpoint_of(write_run(8, "stopped", resume_from="~/a.pt")) == Path.home() / "a.pt"
    run = write_run(8, "stopped", resume_from=str(tmp_path / "other.pt"))
    assert checkpoint_of(run) == tmp_path / "other.pt"
    for name in ("epoch-2-step-90.pt", "epoch-3-step-100.pt", "best.pt", "epoch-1-step-30.pt.part"):
        (run.checkpoints / name).touch()
    assert checkpoint_of(run) == run.checkpoints / "epoch-3-step-100.pt"
    (run.checkpoints / "last.pt").touch()
    assert checkpoint_of(run) == run.checkpoints / "last.pt"


def test_last_execution() -> None:
    run = write_run(8, None)
    assert last_execution(run) == 0
    assert last_execution(register_supervisor(run, alive=False, execution=4)) == 4
    assert last_execution(write_run(8, "stopped")) == 1
    assert last_execution(register_supervisor(write_run(8, "stopped"), alive=False, execution=4)) == 4
