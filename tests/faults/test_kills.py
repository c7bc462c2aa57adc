"""SIGKILL for the supervisor, for a rank or for all processes: cleanup, reports and resuming."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil
import pytest

from engine.contract.events import (
    CommandReceived,
    DevicesSampled,
    Failed,
    PhaseChanged,
    Planned,
    Restarting,
    RunStarted,
    StepMetrics,
    Validation,
)
from engine.contract.protocol import Pause
from engine.runs.queue import list_holders
from tests.faults.conftest import Make, StartRun, Uninterrupted
from tests.faults.real_runs import Hold, RealRun, assert_same_checkpoints, is_alive, kill
from tests.support.waiting import wait_until

pytestmark = pytest.mark.faults

BY_SIGKILL = "Rank 1 was killed by SIGKILL"
KILLS = 200


def assert_resumes_without_loss(run: RealRun, uninterrupted: Uninterrupted) -> None:
    """Resume the run until it completes. Check that it loses no reported checkpoint and has the expected result."""
    before, saved = run.last_n, run.saved
    assert saved
    run.resume().completed(since=before)
    (started,) = run.list_events(RunStarted, since=before)
    assert started.execution == len(run.list_events(RunStarted))
    (planned,) = run.list_events(Planned, since=before)
    assert planned.from_step >= saved
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run.job))


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), pytest.param("ddp", 2, marks=pytest.mark.long)])
def test_killed_supervisor_ends_its_workers_and_the_run_resumes(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted, *, strategy: str, cpus: int
) -> None:
    run = start_held(job(strategy, cpus))
    assert sorted(run.workers()) == list(range(cpus))
    kill(run.pid)
    run.assert_processes_end()
    assert run.folder.state() == "interrupted"
    assert list_holders() == {}
    hold.release()
    assert_resumes_without_loss(run, uninterrupted)


def test_run_resumes_after_all_processes_were_killed(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job("ddp", 2))
    run.kill_all()
    run.assert_processes_end()
    assert run.folder.state() == "interrupted"
    hold.release()
    assert_resumes_without_loss(run, uninterrupted)


def test_killed_rank_restarts_the_run(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job("ddp", 2))
    before, saved = run.workers(), run.saved
    kill(before[1].pid)
    hold.release()
    restart = run.wait_for(Restarting)
    assert (restart.rank, restart.kind, restart.attempt, restart.max_attempts) == (1, "fault", 1, 3)
    assert BY_SIGKILL in restart.cause
    planned = run.wait_for(Planned, since=restart.n)
    assert planned.from_step >= saved
    run.completed()
    assert not any(map(is_alive, before.values()))
    assert run.list_events(Failed) == []
    assert [started.execution for started in run.list_events(RunStarted)] == [1]
    steps = [event.step for event in run.list_events(StepMetrics, since=restart.n)]
    assert min(steps) > planned.from_step
    assert [event.step for event in run.list_events(Validation)][-1] == 18
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job("ddp", 2)))


@pytest.mark.long
@pytest.mark.parametrize(
    ("strategy", "cpus", "fields"),
    [
        ("fsdp", 2, {}),
        ("model_parallel", 2, {}),
        ("pipeline", 2, {"microbatches": 2}),
        ("ddp_pipeline", 4, {"microbatches": 2}),
        ("hsdp", 4, {}),
    ],
)
def test_killed_rank_restarts_the_run_under_every_strategy(
    job: Make, start_run: StartRun, uninterrupted: Uninterrupted, *, strategy: str, cpus: int, fields: dict[str, int]
) -> None:
    requested = job(strategy, cpus, model="mnist_cnn", model_file_sha256="", optimizer="sgd", epochs=8, **fields)
    run = start_run(requested)
    saved = run.wait_for_checkpoint(4).step
    kill(run.workers()[1].pid)
    restart = run.wait_for(Restarting)
    assert (restart.rank, restart.kind) == (1, "fault")
    assert BY_SIGKILL in restart.cause
    assert run.wait_for(Planned, since=restart.n).from_step >= saved
    run.completed(patience_s=60)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(requested))


@pytest.mark.long
def test_rank_killed_during_the_final_checkpoint_loses_nothing(
    job: Make, start_run: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    requested = job("ddp", 2, epochs=1, checkpoint_steps=0)
    hold.set_action("syncing.last.pt.part")
    run = start_run(requested)
    hold.wait_until_reached()
    kill(run.workers()[0].pid)
    assert run.wait_for(Restarting).rank == 0
    hold.release()
    run.completed()
    assert [event.step for event in run.list_events(Validation)] == [6, 6]  # the run has restarted
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(requested))


@pytest.mark.parametrize("moment", [pytest.param("training", marks=pytest.mark.long), "syncing.last.pt.part"])
def test_run_killed_while_pausing_resumes(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted, moment: str
) -> None:
    run = start_held(job())
    hold.set_action(moment)
    hold.wait_until_reached()
    run.send(Pause())
    run.wait_for(PhaseChanged, lambda event: event.phase == "pausing")
    run.kill_all()
    run.assert_processes_end()
    assert run.folder.state() == "interrupted"
    hold.release()
    assert_resumes_without_loss(run, uninterrupted)


def test_only_one_of_two_concurrent_resumes_runs(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted
) -> None:
    run = start_held(job())
    run.kill_all()
    run.assert_processes_end()
    hold.set_action("training")
    before, saved = run.last_n, run.saved
    pids = [run.resume().pid, run.start().pid]
    hold.wait_until_reached()
    wait_until(lambda: len([pid for pid in pids if psutil.pid_exists(pid)]) == 1, "the end of one of them")
    assert len(run.workers()) == 1
    hold.release()
    run.completed(since=before)
    assert [event.execution for event in run.list_events(RunStarted)] == [1, 2]
    assert [event.n for event in run.logged] == list(range(1, run.last_n + 1))
    assert "is already running in another process" in (run.folder.path / "supervisor.log").read_text()
    assert run.list_events(Planned, since=before)[0].from_step >= saved
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job()))


@pytest.mark.long
def test_killed_sampler_is_restarted(job: Make, start_run: StartRun, hold: Hold) -> None:
    hold.set_action("training")
    run = start_run(job())
    run.wait_for(DevicesSampled)
    (sampler,) = [process for process in run.processes() if "engine.gpus" in process.cmdline()]
    kill(sampler.pid)
    before = run.last_n
    run.wait_for(DevicesSampled, lambda event: event.n > before + 1)  # one sample may have been under way
    assert sampler.pid not in [process.pid for process in run.processes()]
    hold.release()
    run.completed()
    assert run.list_events(Failed) == run.list_events(Restarting) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_signal_to_the_supervisor_stops_in_order(
    job: Make, start_held: StartRun, hold: Hold, uninterrupted: Uninterrupted, number: signal.Signals
) -> None:
    run = start_held(job("ddp", 2))
    os.kill(run.pid, number)
    run.wait_for(CommandReceived, lambda event: event.command == number.name)
    hold.release()
    finished = run.wait_for_end()
    assert (finished.outcome, finished.cause) == ("stopped", "")
    assert run.folder.state() == "stopped"
    assert_resumes_without_loss(run, uninterrupted)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_run_ends_the_same_after_200_kills(job: Make, start_run: StartRun) -> None:
    """Kill a random rank shortly after a checkpoint, 200 times.

    On a busy machine, more epochs pass before each kill, and the kills are divided among several runs.
    """
    epochs = 5 * KILLS // 2
    requested = job("ddp", 2, model="mnist_cnn", model_file_sha256="", optimizer="sgd", epochs=epochs, restarts=10)
    expected = start_run(requested).completed(patience_s=600).final_checkpoints
    draws = random.Random(0)
    kills = 0
    while kills < KILLS:
        run, since = start_run(requested), 0
        while kills < KILLS:
            saved = run.wait_for_checkpoint(since=since)
            if saved.epoch > epochs - 50:  # the run could end before another kill
                break
            time.sleep(draws.uniform(0.0, 0.05))
            # The checkpoint may be one that the previous workers saved, while the next ones are starting.
            workers = wait_until(run.workers, "the next workers")
            kill(draws.choice(list(workers.values())).pid)
            kills += 1
            since = run.wait_for(Restarting, since=saved.n).n
        run.completed(patience_s=600)
        assert run.list_events(Failed) == []
        assert_same_checkpoints(run.final_checkpoints, expected)
