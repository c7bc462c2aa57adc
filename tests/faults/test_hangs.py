"""Ranks that hang, and workers that ignore SIGTERM. The supervisor must terminate and report them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from engine.contract.events import CommandReceived, Failed, Planned, Restarting, StepMetrics, Warned
from engine.contract.protocol import Stop
from engine.processes.shutdown import STOP_S, TERM_S
from engine.processes.watchdog import LIMITS, Limits
from tests.faults.conftest import Make, StartRun, Uninterrupted, WriteModel
from tests.faults.real_runs import Hold, assert_same_checkpoints, is_alive
from tests.support.cases import mark_long_cases
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

HANGS = """
import os
import time
import torch
from torch import nn

@torch.fx.wrap
def maybe_hang(values):
    if os.path.exists(__file__ + ".hang") and torch.distributed.get_rank() == 1:
        time.sleep(3600)
    return values * 1

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, images):
        return maybe_hang(self.head(self.stem(images)))

def build_model(num_classes):
    return Net(num_classes)
"""
"""Source of a network that hangs on rank 1 as soon as a certain file exists next to the model file."""

QUICK = Limits(silent=2.5, silent_preparing=20.0, silent_warning=3.0, stuck=20.0)
FORCED = "Rank 0 did not exit when asked and was killed."


@pytest.mark.long
def test_stopped_rank_restarts_the_run(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job("ddp", 2), limits=QUICK)
    saved, victim = run.saved, run.workers()[1]
    victim.suspend()
    hold.release()
    restart = run.wait_for(Restarting)
    assert (restart.rank, restart.kind) == (1, "fault")
    assert "Rank 1 has not responded for" in restart.cause
    assert run.wait_for(Planned, since=restart.n).from_step >= saved
    assert not is_alive(victim)
    run.completed()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job("ddp", 2)))


def test_briefly_stopped_rank_is_not_reported(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job("ddp", 2))
    victim = run.workers()[1]
    victim.suspend()
    hold.release()
    time.sleep(1)  # nothing may happen in this time
    assert run.list_events(StepMetrics)[-1].step < 6  # the other rank waits for it
    victim.resume()
    run.completed()
    assert run.list_events(Restarting) == run.list_events(Failed) == run.list_events(Warned) == []
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job("ddp", 2)))


@pytest.mark.parametrize("strategy", mark_long_cases(("ddp", "fsdp", "pipeline"), everyday=("pipeline",)))
def test_hanging_rank_is_reported_with_its_location(
    job: Make, start_run: StartRun, write_permitted_model: WriteModel, *, strategy: str
) -> None:
    fields = {"epochs": 100_000, "checkpoint_steps": 0, "restarts": 0, **write_permitted_model(HANGS)}
    fields |= {"microbatches": 4} if strategy == "pipeline" else {}
    run = start_run(job(strategy, 2, **fields), limits=Limits(4.0, 4.0, stuck=6.0))
    run.wait_for_step(20)
    Path(f"{fields['model']}.hang").touch()
    assert run.wait_for_end().outcome == "failed"
    (failed,) = run.list_events(Failed)
    assert failed.rank == 1
    assert failed.step is not None
    assert "Rank 1 blocks the run" in failed.cause
    assert ", in maybe_hang (other_net.py, line 10), while rank 0 waits" in failed.cause


@pytest.mark.long
def test_stopped_rank_restarts_the_run_with_default_limits(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job("ddp", 2))
    run.workers()[0].suspend()
    hold.release()
    started = time.time()
    restart = run.wait_for(Restarting)
    assert restart.rank == 0
    assert "while other ranks still do: it was stopped." in restart.cause
    assert LIMITS.silent - 2 < restart.time - started < LIMITS.silent + 5
    run.completed()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job("ddp", 2)))


def test_stopped_single_rank_warns_and_resumes(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job())
    (worker,) = run.workers().values()
    worker.suspend()
    hold.release()
    warned = run.wait_for(Warned)
    assert (warned.code, warned.rank) == ("stopped", 0)
    assert f"Rank 0 was stopped by a signal. `kill -CONT {worker.pid}` resumes it" in warned.message
    worker.resume()
    run.completed()
    assert run.list_events(Restarting) == []
    assert [event.code for event in run.list_events(Warned)] == ["stopped"]
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job()))


@pytest.mark.long
def test_single_rank_that_stays_stopped_restarts_the_run(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job(), limits=Limits(stopped=1.0))
    saved, (worker,) = run.saved, run.workers().values()
    worker.suspend()
    hold.release()
    restart = run.wait_for(Restarting)
    assert [event.code for event in run.list_events(Warned)] == ["stopped"]
    assert (restart.rank, restart.kind) == (0, "fault")
    assert "Rank 0 was stopped by a signal and hasn't resumed for" in restart.cause
    assert "See worker-0.log." in restart.cause
    assert run.wait_for(Planned, since=restart.n).from_step >= saved
    assert not is_alive(worker)
    run.completed()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job()))


@pytest.mark.long
@pytest.mark.parametrize("stopped", ["supervisor", "all processes"])
def test_stopped_supervisor_reports_no_rank(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted, stopped: str
) -> None:
    run = start_held(job("ddp", 2), limits=QUICK)
    processes = [psutil.Process(run.pid)] if stopped == "supervisor" else run.processes()
    for process in processes:
        process.suspend()
    time.sleep(QUICK.silent + 2)  # nothing may happen in this time
    for process in processes:
        process.resume()
    hold.release()
    run.completed()
    assert run.list_events(Restarting) == run.list_events(Failed) == run.list_events(Warned) == []
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job("ddp", 2)))


@pytest.mark.parametrize("what", [pytest.param("ignore", marks=pytest.mark.long), "block"])
def test_stop_kills_a_worker_that_ignores_sigterm(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted, what: str
) -> None:
    deadline_s = 0.5
    run = start_held(job("ddp", 2), deadline_s=deadline_s)
    hold.set_action("training", what=what)
    hold.wait_until_reached()
    saved = run.saved
    run.send(Stop())
    received = run.wait_for(CommandReceived)
    finished = run.wait_for_end()
    assert finished.outcome == "stopped"
    assert finished.cause in (FORCED, "Ranks 0 and 1 did not exit when asked and were killed.")
    assert 2 * deadline_s <= finished.time - received.time
    hold.release()
    before = run.last_n
    run.resume().completed(since=before)
    assert run.list_events(Planned, since=before)[0].from_step >= saved
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job("ddp", 2)))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_deaf_worker_ends_within_default_deadlines(job: Make, start_run: StartRun, hold: Hold) -> None:
    hold.set_action("training", what="block")
    run = start_run(job())
    hold.wait_until_reached()
    started = time.time()
    os.kill(run.pid, signal.SIGTERM)
    wait_until(lambda: bool(run.list_events(CommandReceived)), "the stop to be heard")
    finished = run.wait_for_end(patience_s=STOP_S + TERM_S + 15)
    assert (finished.outcome, finished.cause) == ("stopped", FORCED)
    assert STOP_S + TERM_S <= finished.time - started < STOP_S + TERM_S + 5
    assert not run.list_events(StepMetrics)
