"""Restarts within an execution, pauses, and several executions of a run."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.contract.events import (
    AnyEvent,
    CommandReceived,
    DevicesFree,
    Failed,
    LogLine,
    PhaseChanged,
    Restarting,
    RunFinished,
    RunStarted,
    StepMetrics,
    Waiting,
    Warned,
)
from engine.contract.job import Job
from engine.contract.protocol import Adjust, CheckpointNow, Command, Pause, SaveElsewhere, Stop
from engine.runs import queue
from engine.runs.folder import create_run
from engine.runs.launch import start_supervisor
from engine.runs.resume import job_to_resume, save_next_job
from engine.supervisor.execution import log_failed_start
from tests.engine.supervisor.supervised import ROOT, Start, Supervised, events, has_exited
from tests.support.waiting import PATIENCE_S, wait_until


def of_kind(kind: type, logged: list[AnyEvent]) -> list[AnyEvent]:
    return [event for event in logged if isinstance(event, kind)]


def restarts(logged: list[AnyEvent]) -> list[Restarting]:
    return [event for event in logged if isinstance(event, Restarting)]


def starting_points(supervised: Supervised, *, rank: int = 0) -> list[str]:
    """Return the starting point of each attempt of a rank according to its log, such as "from last.pt, past step 7"."""
    lines = supervised.run.worker_log(rank).read_text().splitlines()
    return [line.partition(" begins ")[2] for line in lines if " begins " in line]


def send_and_wait(supervised: Supervised, *commands: Command) -> list[AnyEvent]:
    """Send `commands` as soon as the run trains, and wait until its supervisor has exited. Return all logged events."""
    with supervised.connect() as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, RunStarted) and event.execution == _executions(supervised))
        next(event for event in stream if isinstance(event, StepMetrics))
        for command in commands:
            connection.send(command)
        list(stream)
    return supervised.wait()


def has_trained(supervised: Supervised) -> bool:
    return any(isinstance(event, StepMetrics) for event in supervised.run.events())


def _executions(supervised: Supervised) -> int:
    content = supervised.run.supervisor()
    return content.execution if content is not None else 0


def resume(supervised: Supervised, **changes: object) -> None:
    """Resume the run with changes to its job, as a user can."""
    job, problems = job_to_resume(supervised.run, changes)
    assert job is not None, problems
    save_next_job(supervised.run, job)
    execution = _executions(supervised) + 1
    supervised.process = supervised.start()
    wait_until(lambda: _executions(supervised) == execution, "the next execution")


# Restarts


@pytest.mark.parametrize("arguments", [(), pytest.param(("spawn",), marks=pytest.mark.long)])
def test_dead_rank_restarts_from_the_last_checkpoint(start: Start, arguments: tuple[str, ...]) -> None:
    supervised = start("die 2", 2, *arguments, restarts=3)
    (supervised.run.checkpoints / "last.pt").touch()
    logged = supervised.wait()
    assert supervised.process.returncode == 0, supervised.log
    assert supervised.run.state() == "completed"
    assert of_kind(Failed, logged) == []
    assert [(e.rank, e.kind, e.attempt, e.max_attempts, e.changes) for e in restarts(logged)] == [
        (1, "fault", 1, 3, {}),
        (1, "fault", 2, 3, {}),
    ]
    assert all("SIGKILL" in event.cause for event in restarts(logged))
    assert starting_points(supervised, rank=1) == ["from last.pt, past step 0"] * 3
    assert len(of_kind(RunStarted, logged)) == len(of_kind(DevicesFree, logged)) == 1, "it is one execution"


def test_repeated_death_fails_the_run(start: Start) -> None:
    supervised = start("die 9", 2, restarts=2)
    logged = supervised.wait()
    assert supervised.process.returncode == 1
    assert [event.attempt for event in restarts(logged)] == [1, 2]
    (failed,) = of_kind(Failed, logged)
    assert isinstance(failed, Failed)
    assert "SIGKILL" in failed.cause
    assert "already been restarted 2 times without reaching a new checkpoint" in failed.cause
    assert isinstance(logged[-1], RunFinished)
    assert (logged[-1].outcome, logged[-1].cause) == ("failed", failed.cause)


def test_new_checkpoint_resets_the_restart_count(start: Start) -> None:
    supervised = start("save_and_die 3", restarts=1)
    logged = supervised.wait()
    assert supervised.run.state() == "completed"
    assert [(event.attempt, event.max_attempts) for event in restarts(logged)] == [(1, 1)] * 3
    assert starting_points(supervised)[:2] == ["from nothing, past step 0", "from last.pt, past step 0"]


def test_checkpoint_of_the_same_step_keeps_the_restart_count(start: Start) -> None:
    logged = start("save_the_same_and_die 9", restarts=1).wait()
    assert [event.attempt for event in restarts(logged)] == [1]
    assert len(of_kind(Failed, logged)) == 1


@pytest.mark.parametrize("behavior", ["mistake", "not_finite 1"])
def test_reproducible_failure_is_not_retried(start: Start, behavior: str) -> None:
    logged = start(behavior, 2, restarts=3).wait()
    assert restarts(logged) == []
    assert len(of_kind(Failed, logged)) == 1


def test_nan_loss_rolls_back_and_skips_steps(start: Start) -> None:
    supervised = start("not_finite 2", on_not_finite="roll_back", restarts=0)
    logged = supervised.wait()
    assert supervised.run.state() == "completed"
    assert [(e.kind, e.step, e.attempt) for e in restarts(logged)] == [("not_finite", 7, 1), ("not_finite", 14, 2)]
    assert starting_points(supervised) == [f"from nothing, past step {step}" for step in (0, 7, 14)]


@pytest.mark.parametrize(
    ("fields", "needed", "changes"),
    [
        ({"strategy": "ddp", "batch_size": 12}, 6, [{"accumulation": 2}, {"accumulation": 4}, {"accumulation": 6}]),
        (
            {"strategy": "pipeline", "batch_size": 32, "microbatches": 4},
            16,
            [{"microbatches": 8}, {"microbatches": 16}],
        ),
    ],
)
def test_out_of_memory_retries_with_smaller_batches(
    start: Start, fields: dict[str, object], needed: int, changes: list[dict[str, int]]
) -> None:
    supervised = start(f"memory {needed}", 2, restarts=0, **fields)
    logged = supervised.wait()
    assert supervised.run.state() == "completed", supervised.log
    assert [event.changes for event in restarts(logged)] == changes
    assert [event.attempt for event in restarts(logged)] == list(range(1, len(changes) + 1))
    job = supervised.run.job()
    assert job is not None
    for field, value in changes[-1].items():
        assert job.value(field) == value, "it holds for later executions, too"


def test_out_of_memory_with_single_images_fails(start: Start) -> None:
    logged = start("memory 99", 2, batch_size=4).wait()
    assert [event.changes for event in restarts(logged)] == [{"accumulation": 2}]
    (failed,) = of_kind(Failed, logged)
    assert "out_of_memory" in str(failed)


@pytest.mark.parametrize(("command", "outcome"), [(Stop(), "stopped"), (Pause(), "paused")])
def test_restarting_run_obeys_commands(start: Start, command: Command, outcome: str) -> None:
    supervised = start("die 9999", 2, restarts=1000)
    with supervised.connect() as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, Restarting) and event.attempt == 3)
        connection.send(command)
        list(stream)
    finished = supervised.wait()[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome in (outcome, "failed"), "a rank may die while it is asked to end"


def test_commands_reach_workers_and_those_after_a_restart(start: Start) -> None:
    supervised = start("echo", 1, restarts=1, loader_workers=4)
    with supervised.connect() as connection:
        stream = events(connection)
        texts = (
            event.text if isinstance(event, LogLine) else event.code
            for event in stream
            if isinstance(event, LogLine | Warned)
        )
        assert next(texts) == "4 loader workers"
        for command, answers in (
            (SaveElsewhere(folder="/x"), ("not_saved_elsewhere",)),
            (Adjust(loader_workers=7), ("Adjust", "7 loader workers")),
            (CheckpointNow(), ("CheckpointNow", "unsaved")),
            (SaveElsewhere(folder="/y"), ("SaveElsewhere",)),
        ):
            connection.send(command)
            assert tuple(next(texts) for _ in answers) == answers
        supervised.process.send_signal(signal.SIGUSR1)
        assert next(texts) == "Pause"
        list(stream)
    logged = supervised.wait()
    commands = [event.command for event in logged if isinstance(event, CommandReceived)]
    assert commands == ["save_elsewhere", "use_7_loader_workers", "checkpoint_now", "save_elsewhere", "SIGUSR1"]
    assert [event.code for event in logged if isinstance(event, Warned)] == ["not_saved_elsewhere", "unsaved"]
    assert supervised.run.state() == "paused"


def test_deleted_log_stops_the_run(start: Start) -> None:
    supervised = start("forever", 1)
    with supervised.connect() as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, StepMetrics))
        supervised.run.events_file.unlink()
        logged = list(stream)
    supervised.process.wait(PATIENCE_S)
    (warned,) = (event for event in logged if isinstance(event, Warned))
    finished = logged[-1]
    assert isinstance(finished, RunFinished)
    assert (warned.code, finished.outcome, finished.cause) == ("log_deleted", "stopped", warned.message)


# Pausing and resuming


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(Pause(), Pause(), "paused"), (Pause(), Stop(), "stopped"), (Stop(), Pause(), "stopped")],
)
def test_second_command_escalates_the_first(start: Start, first: Command, second: Command, outcome: str) -> None:
    supervised = start("deaf", 1, "quick")
    with supervised.connect() as connection:
        stream = events(connection)
        next(event for event in stream if type(event).__name__ == "LogLine")
        connection.send(first)
        connection.send(second)
        list(stream)
    finished = supervised.wait()[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outcome == outcome
    assert "was killed" in finished.cause


def test_paused_run_resumes_as_the_next_execution(start: Start) -> None:
    supervised = start("forever", 2)
    before = send_and_wait(supervised, Pause())
    assert (supervised.process.returncode, supervised.run.state()) == (0, "paused")
    assert "pausing" in [event.phase for event in before if isinstance(event, PhaseChanged)]
    assert isinstance(before[-1], RunFinished)
    assert (before[-1].cause, before[-1].checkpoints) == ("", ("checkpoints/last.pt",))
    resume(supervised, devices=["cpu"], strategy="single")
    assert supervised.run.state() in ("starting", "running")
    logged = send_and_wait(supervised, Stop())
    assert logged[: len(before)] == before
    assert [event.n for event in logged] == list(range(1, len(logged) + 1))
    first, second = of_kind(RunStarted, logged)
    assert isinstance(first, RunStarted)
    assert isinstance(second, RunStarted)
    assert (first.execution, second.execution) == (1, 2)
    assert (first.world_size, second.world_size) == (2, 1)
    assert 0 < second.worked_s <= before[-1].time - before[0].time
    assert [(e.execution, e.outcome) for e in logged if isinstance(e, RunFinished)] == [(1, "paused"), (2, "stopped")]
    assert starting_points(supervised) == ["from nothing, past step 0", "from last.pt, past step 0"]


def test_interrupted_run_continues_its_numbering(start: Start) -> None:
    supervised = start("forever")
    with supervised.connect() as connection:
        next(event for event in events(connection) if isinstance(event, StepMetrics))
        supervised.process.send_signal(signal.SIGKILL)
        supervised.process.wait()
    assert supervised.run.state() == "interrupted"
    resume(supervised)
    logged = send_and_wait(supervised, Pause())
    assert [event.n for event in logged] == list(range(1, len(logged) + 1))
    assert [event.execution for event in logged if isinstance(event, RunStarted)] == [1, 2]
    assert supervised.run.state() == "paused"


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_locked_run_folder_refuses_a_supervisor() -> None:
    import fcntl

    run = create_run(Job())
    lock = os.open(run.path, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    second = start_supervisor(run)
    wait_until(lambda: has_exited(second), "the second one to go")
    os.close(lock)
    assert "already running in another process" in (run.path / "supervisor.log").read_text()
    assert not run.supervisor_file.exists()
    assert not run.events_file.exists()


NO_LOCKS = """
import errno, fcntl, sys
from pathlib import Path
from engine.supervisor.execution import supervise

errors = [BlockingIOError(errno.EAGAIN, "Locked"), OSError(errno.ENOLCK, "No locks available")]

def refuse(_descriptor, _operation):
    raise errors.pop(0)

fcntl.flock = refuse
sys.exit(supervise(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_supervisor_waits_for_the_previous_one_and_needs_no_locks() -> None:
    """Lock the folder of an ended run until the second try, which finds that the file system has no locks."""
    run = create_run(Job())
    log_failed_start(run, "It broke.")
    run.job_file.write_text("= 1")  # the supervisor logs the failure and exits
    subprocess.run([sys.executable, "-c", NO_LOCKS, run.path], cwd=ROOT, capture_output=True, check=False)
    logged = [(type(event), event.cause) for event in run.events() if isinstance(event, Failed | RunFinished)]
    assert logged[:2] == [(Failed, "It broke."), (RunFinished, "It broke.")]
    finished = run.last_event()
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.execution, len(logged)) == ("failed", 2, 4)


# Waiting


def test_queued_run_waits_without_pytorch_and_obeys_pause(start: Start) -> None:
    first = start("forever")
    wait_until(lambda: has_trained(first), "the first one to train")
    second, third = start("forever"), start("forever")
    wait_until(lambda: {second.run.state(), third.run.state()} == {"waiting"}, "the others to wait")
    waiting = second.run.last_event()
    assert isinstance(waiting, Waiting)
    assert first.run.run_id in waiting.behind
    wait_until(lambda: psutil.Process(second.process.pid).children() == [], "the sampler to be let go")
    loaded = Path(f"/proc/{second.process.pid}/maps").read_text()
    assert "libtorch" not in loaded

    with third.connect() as connection:
        connection.send(Pause())
        logged = list(events(connection))
    assert third.run.state() == "paused"
    free = next(event for event in logged if isinstance(event, DevicesFree))
    assert free.verified
    third.wait()
    assert third.run.run_id not in {ticket.run_id for ticket in queue.list_waiting()}

    send_and_wait(first, Pause())
    logged = send_and_wait(second, Stop())
    assert isinstance(logged[0], RunStarted)
    kinds = [kind for kind, _ in itertools.groupby(logged, type)]  # the queue may change several times
    assert kinds[:4] == [RunStarted, PhaseChanged, Waiting, PhaseChanged]


def test_run_that_starts_at_once_skips_the_queue(start: Start) -> None:
    first = start("forever")
    wait_until(lambda: has_trained(first), "the first one to train")
    second = start("forever", start="at_once")
    wait_until(lambda: has_trained(second), "the second one to train")
    assert first.run.state() == "running"
    assert of_kind(Waiting, send_and_wait(second, Stop())) == []
    send_and_wait(first, Stop())
