"""Runs that are killed at every kind of moment. They must resume and end with the same result."""

from __future__ import annotations

import os
import signal
import time
import zipfile

import psutil
import pytest
import torch

from engine.contract.events import CheckpointSaved, PhaseChanged, Planned, RunFinished, StepMetrics, Validation
from engine.runs.folder import START_GRACE_S
from engine.training.checkpointing.checkpoint_files import verify_checkpoint
from tests.faults.conftest import Make, StartRun, Uninterrupted, WriteModel
from tests.faults.real_runs import MODEL, Hold, RealRun, assert_same_checkpoints
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.faults

LARGE = MODEL.replace("32", "2048")


def kill(run: RealRun) -> None:
    run.kill_all()
    run.assert_processes_end()


def resume_to_end(run: RealRun) -> int:
    """Resume the run, wait until it completes, and return the step at which it resumed."""
    before = run.last_n
    run.resume().completed(since=before)
    (planned,) = run.list_events(Planned, since=before)
    return planned.from_step


def test_run_killed_before_its_first_event_starts_over(
    job: Make, start_cold: StartRun, uninterrupted: Uninterrupted
) -> None:
    expected = uninterrupted(job())
    run = start_cold(job())
    kill(run)
    assert run.logged == []
    assert run.folder.state() == "starting"
    long_ago = run.folder.job_file.stat().st_mtime - START_GRACE_S
    os.utime(run.folder.job_file, (long_ago, long_ago))
    assert run.folder.state() == "interrupted"
    assert resume_to_end(run) == 0
    assert_same_checkpoints(run.final_checkpoints, expected)


@pytest.mark.parametrize("moment", [pytest.param("building", marks=pytest.mark.long), "training"])
def test_run_killed_before_its_first_step_starts_over(
    job: Make, start_run: StartRun, hold: Hold, uninterrupted: Uninterrupted, moment: str
) -> None:
    expected = uninterrupted(job())
    hold.set_action(moment)
    run = start_run(job())
    hold.wait_until_reached()
    if moment == "training":
        run.wait_for(Planned)
    else:
        assert not run.list_events(Planned)
    kill(run)
    assert run.folder.state() == "interrupted"
    assert not run.list_events(StepMetrics)
    assert not run.last.exists()
    hold.release()
    assert resume_to_end(run) == 0
    assert_same_checkpoints(run.final_checkpoints, expected)


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), pytest.param("ddp", 2, marks=pytest.mark.long)])
def test_run_killed_during_validation_repeats_it(
    job: Make, start_run: StartRun, hold: Hold, uninterrupted: Uninterrupted, *, strategy: str, cpus: int
) -> None:
    expected = uninterrupted(job(strategy, cpus))
    hold.set_action("validating")
    run = start_run(job(strategy, cpus))
    hold.wait_until_reached()
    run.wait_for(PhaseChanged, lambda event: event.phase == "validating")
    wait_until(
        lambda: bool(run.list_events(CheckpointSaved)) and run.list_events(CheckpointSaved)[-1].step == 6,
        "the checkpoint",
    )
    kill(run)
    assert not run.list_events(Validation)
    hold.release()
    assert resume_to_end(run) == 6
    assert [event.step for event in run.list_events(Validation)] == [6, 12, 18]
    assert_same_checkpoints(run.final_checkpoints, expected)


def test_run_killed_after_its_last_checkpoint_completes(
    job: Make, start_run: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    """Suspend the supervisor while the worker exits, and kill it before it notices the exit."""
    expected = uninterrupted(job(epochs=1))
    hold.set_action("validating")
    run = start_run(job(epochs=1))
    hold.wait_until_reached()
    (worker,) = run.workers().values()
    os.kill(run.pid, signal.SIGSTOP)
    hold.release()
    wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE, "the end of the worker")
    kill(run)
    assert not run.list_events(RunFinished)
    assert not run.list_events(Validation)
    assert run.folder.state() == "interrupted"
    assert_same_checkpoints(run.final_checkpoints, expected)
    assert resume_to_end(run) == 6
    assert_same_checkpoints(run.final_checkpoints, expected)


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        ("syncing", "last.pt"),
        ("renaming", "last.pt"),
        pytest.param("syncing", "best.pt", marks=pytest.mark.long),
        pytest.param("renaming", "best.pt", marks=pytest.mark.long),
    ],
)
def test_checkpoint_killed_before_rename_costs_a_step(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted, *, moment: str, name: str
) -> None:
    expected = uninterrupted(job())
    run = start_held(job())
    hold.set_action(f"{moment}.{name}.part")
    hold.wait_until_reached()
    kill(run)
    assert zipfile.is_zipfile(run.partial_file(name))
    assert verify_checkpoint(run.last)
    saved = torch.load(run.last, weights_only=True)["step"]
    assert saved >= run.saved
    hold.release()
    assert resume_to_end(run) == saved
    assert not run.partial_file(name).exists()
    assert_same_checkpoints(run.final_checkpoints, expected)


@pytest.mark.long
def test_half_written_checkpoint_costs_a_step(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted, write_permitted_model: WriteModel
) -> None:
    run_job = job(**write_permitted_model(LARGE), optimizer="sgd", epochs=2)
    expected = uninterrupted(run_job)
    run = start_held(run_job)
    saved = run.saved
    (worker,) = run.workers().values()
    size = run.last.stat().st_size
    hold.release()
    started = time.monotonic()
    # No pause between checks, because it would be longer than the write.
    while not suspend_while_writing(run, worker, size):
        assert time.monotonic() < started + PATIENCE_S, "no checkpoint was seen half written"
    kill(run)
    assert 0 < run.partial_file().stat().st_size < size
    assert verify_checkpoint(run.last)
    assert resume_to_end(run) >= saved
    assert not run.partial_file().exists()
    assert_same_checkpoints(run.final_checkpoints, expected)


def suspend_while_writing(run: RealRun, worker: psutil.Process, size: int) -> bool:
    """Suspend the worker in the middle of writing a checkpoint of `size` bytes.

    Returns False if it wasn't writing one.
    """
    if not 0 < written_bytes(run) < size:
        return False
    worker.suspend()
    wait_until(lambda: worker.status() == psutil.STATUS_STOPPED, "the worker to stand still")
    if 0 < written_bytes(run) < size:
        return True
    worker.resume()
    return False


def written_bytes(run: RealRun) -> int:
    try:
        return run.partial_file().stat().st_size
    except FileNotFoundError:
        return 0
