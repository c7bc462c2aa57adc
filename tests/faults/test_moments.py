"""Runs killed at every kind of moment, which resume with the same result."""

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
from tests.engine.supervisor.supervised import PATIENCE_S, wait_until
from tests.faults.conftest import Allowed, Begin, Make, Whole
from tests.faults.real_runs import MODEL, Hold, RealRun, assert_same_end

pytestmark = pytest.mark.faults

LARGE = MODEL.replace("32", "2048")


def kill(run: RealRun) -> None:
    run.kill_all()
    run.assert_gone_at_once()


def goes_on(run: RealRun) -> int:
    """Resume the run to its end and return the step where it continued."""
    before = run.last_n
    run.resume().completed(since=before)
    (planned,) = run.all(Planned, since=before)
    return planned.from_step


def test_run_killed_before_its_first_event_starts_over(job: Make, begin_anew: Begin, whole: Whole) -> None:
    expected = whole(job())
    run = begin_anew(job())
    kill(run)
    assert run.logged == []
    assert run.folder.state() == "starting"
    long_ago = run.folder.job_file.stat().st_mtime - START_GRACE_S
    os.utime(run.folder.job_file, (long_ago, long_ago))
    assert run.folder.state() == "interrupted"
    assert goes_on(run) == 0
    assert_same_end(run.end, expected)


@pytest.mark.parametrize("moment", [pytest.param("building", marks=pytest.mark.long), "training"])
def test_run_killed_before_its_first_step_starts_over(
    job: Make, begin: Begin, hold: Hold, whole: Whole, moment: str
) -> None:
    expected = whole(job())
    hold.ask(moment)
    run = begin(job())
    hold.wait_until_reached()
    if moment == "training":
        run.wait_for(Planned)
    else:
        assert not run.all(Planned)
    kill(run)
    assert run.folder.state() == "interrupted"
    assert not run.all(StepMetrics)
    assert not run.last.exists()
    hold.release()
    assert goes_on(run) == 0
    assert_same_end(run.end, expected)


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), pytest.param("ddp", 2, marks=pytest.mark.long)])
def test_run_killed_during_validation_repeats_it(
    job: Make, begin: Begin, hold: Hold, whole: Whole, *, strategy: str, cpus: int
) -> None:
    expected = whole(job(strategy, cpus))
    hold.ask("validating")
    run = begin(job(strategy, cpus))
    hold.wait_until_reached()
    run.wait_for(PhaseChanged, lambda event: event.phase == "validating")
    wait_until(lambda: bool(run.all(CheckpointSaved)) and run.all(CheckpointSaved)[-1].step == 6, "the checkpoint")
    kill(run)
    assert not run.all(Validation)
    hold.release()
    assert goes_on(run) == 6
    assert [event.step for event in run.all(Validation)] == [6, 12, 18]
    assert_same_end(run.end, expected)


def test_run_killed_after_its_last_checkpoint_completes(job: Make, begin: Begin, hold: Hold, whole: Whole) -> None:
    """Suspend the supervisor while the worker ends, so that it hasn't read the end when it is killed."""
    expected = whole(job(epochs=1))
    hold.ask("validating")
    run = begin(job(epochs=1))
    hold.wait_until_reached()
    (worker,) = run.workers().values()
    os.kill(run.pid, signal.SIGSTOP)
    hold.release()
    wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE, "the end of the worker")
    kill(run)
    assert not run.all(RunFinished)
    assert not run.all(Validation)
    assert run.folder.state() == "interrupted"
    assert_same_end(run.end, expected)
    assert goes_on(run) == 6
    assert_same_end(run.end, expected)


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
    job: Make, begin_held: Begin, hold: Hold, whole: Whole, *, moment: str, name: str
) -> None:
    expected = whole(job())
    run = begin_held(job())
    hold.ask(f"{moment}.{name}.part")
    hold.wait_until_reached()
    kill(run)
    assert zipfile.is_zipfile(run.part(name))
    assert verify_checkpoint(run.last)
    saved = torch.load(run.last, weights_only=True)["step"]
    assert saved >= run.saved
    hold.release()
    assert goes_on(run) == saved
    assert not run.part(name).exists()
    assert_same_end(run.end, expected)


@pytest.mark.long
def test_half_written_checkpoint_costs_a_step(
    job: Make, begin_held: Begin, hold: Hold, whole: Whole, allowed: Allowed
) -> None:
    asked = job(**allowed(LARGE), optimizer="sgd", epochs=2)
    expected = whole(asked)
    run = begin_held(asked)
    saved = run.saved
    (worker,) = run.workers().values()
    size = run.last.stat().st_size
    hold.release()
    begun = time.monotonic()
    while not stopped_half_way(run, worker, size):  # a pause between two looks would be longer than the writing
        assert time.monotonic() < begun + PATIENCE_S, "no checkpoint was seen half written"
    kill(run)
    assert 0 < run.part().stat().st_size < size
    assert verify_checkpoint(run.last)
    assert goes_on(run) >= saved
    assert not run.part().exists()
    assert_same_end(run.end, expected)


def stopped_half_way(run: RealRun, worker: psutil.Process, size: int) -> bool:
    """Return True if the worker is stopped while it writes a checkpoint of that size."""
    if not 0 < written(run) < size:
        return False
    worker.suspend()
    wait_until(lambda: worker.status() == psutil.STATUS_STOPPED, "the worker to stand still")
    if 0 < written(run) < size:
        return True
    worker.resume()
    return False


def written(run: RealRun) -> int:
    try:
        return run.part().stat().st_size
    except FileNotFoundError:
        return 0
