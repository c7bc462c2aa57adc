"""Complete runs with a real supervisor process and the tiny worker."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from engine.contract.events import (
    Chosen,
    CommandReceived,
    DevicesFree,
    EpochStarted,
    Failed,
    LogLine,
    PhaseChanged,
    RunFinished,
    RunStarted,
    StepMetrics,
    Warned,
)
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.runs import queue
from engine.runs.folder import create_run
from engine.runs.launch import start_supervisor
from engine.supervisor.endpoint import remove_stale_sockets
from engine.system import paths
from tests.engine.supervisor.supervised import Start, Supervised, events, has_exited, messages, wait_until_exited
from tests.support.waiting import wait_until


def workers_of(supervised: Supervised, count: int) -> list[psutil.Process]:
    """Wait until the run has started `count` workers, and return them."""

    def has_started() -> bool:
        return all("begins" in _text(supervised.run.worker_log(rank)) for rank in range(count))

    wait_until(has_started, "workers")
    children = psutil.Process(supervised.process.pid).children()
    found = [child for child in children if child.name().startswith("footplate-w")]
    assert len(found) == count
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("arguments", [(), ("tcp",), ("spawn",)])
def test_run_logs_all_events_without_gaps(start: Start, arguments: tuple[str, ...]) -> None:
    supervised = start("train 20", 2, *arguments)
    logged = supervised.wait()
    assert supervised.process.returncode == 0, supervised.log
    assert [event.n for event in logged] == list(range(1, len(logged) + 1))
    assert isinstance(logged[0], RunStarted)
    started = logged[0]
    assert (started.run_id, started.job, started.world_size) == (supervised.run.run_id, supervised.run.job(), 2)
    assert (started.execution, started.worked_s, started.supervisor_pid) == (1, 0.0, supervised.process.pid)
    assert started.devices[0].ranks == (0, 1)
    assert {"python", "torch", "host", "cpu"} <= set(logged[0].environment)
    assert [event.step for event in logged if isinstance(event, StepMetrics)] == list(range(1, 21))
    free, finished = logged[-2:]
    assert isinstance(free, DevicesFree)
    assert free.verified
    assert isinstance(finished, RunFinished)
    assert finished.outcome == supervised.run.state() == "completed"
    assert (finished.execution, finished.cause, finished.best, finished.best_epoch) == (1, "", {"top1": 0.5}, 1)
    assert finished.checkpoints == ("checkpoints/last.pt",)
    assert finished.seconds == pytest.approx(finished.time - started.time, abs=5)
    assert [path.name for path in paths.runtime_folder().iterdir()] == ["queue"]
    assert queue.list_holders() == {}


def test_automatic_strategy_is_logged_with_its_reason(start: Start) -> None:
    logged = [start("train 1", cpus, strategy="auto").wait() for cpus in (1, 2)]
    one, two = [event for events_of_run in logged for event in events_of_run if isinstance(event, Chosen)]
    assert (one.field, one.choice, two.field, two.choice) == ("strategy", "single", "strategy", "ddp")
    assert one.why != two.why


def test_socket_and_folder_are_private(start: Start) -> None:
    supervised = start("forever")
    with supervised.connect() as connection:
        next(messages(connection))
        path = next(paths.runtime_folder().glob("*.sock"))
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_mode & 0o777 == 0o600
        assert supervised.run.supervisor_file.stat().st_mode & 0o777 == 0o600
        path.unlink()
        wait_until(path.exists, "another socket")
        with supervised.connect() as reconnected:
            reconnected.send(Stop())
            list(messages(reconnected))
    supervised.wait()


@pytest.mark.parametrize("arguments", [(), ("spawn",)])
def test_stop_ends_every_rank_and_reports_free_devices(start: Start, arguments: tuple[str, ...]) -> None:
    supervised = start("forever", 2, *arguments)
    workers = workers_of(supervised, 2) if not arguments else []
    with supervised.connect() as connection:
        stream = events(connection)
        next(event for event in stream if isinstance(event, StepMetrics))
        assert supervised.run.state() == "running"
        connection.send(Stop())
        last = [event for event in stream if not isinstance(event, StepMetrics)]
    kinds = [type(event) for event in last if not isinstance(event, EpochStarted)]
    assert kinds.index(CommandReceived) < kinds.index(DevicesFree) < kinds.index(RunFinished)
    assert "stopping" in [e.phase for e in last if isinstance(e, PhaseChanged)]
    supervised.wait()
    assert supervised.process.returncode == 0
    assert supervised.run.state() == "stopped"
    assert not any(worker.is_running() for worker in workers)


def test_worker_that_ignores_sigterm_is_killed(start: Start) -> None:
    supervised = start("deaf", 2, "quick")
    workers = workers_of(supervised, 2)
    with supervised.connect() as connection:
        next(event for event in events(connection) if isinstance(event, LogLine))
        connection.send(Stop())
        list(messages(connection))
    *_, free, finished = supervised.wait()
    assert isinstance(free, DevicesFree)
    assert free.seconds > 0.5, "the time limit for stopping"
    assert isinstance(finished, RunFinished)
    assert finished.outcome == "stopped"
    assert "Ranks 0 and 1 did not exit when asked and were killed." in finished.cause
    assert not any(worker.is_running() for worker in workers)


def test_second_stop_does_not_wait_for_the_step(start: Start) -> None:
    supervised = start("deaf")
    workers_of(supervised, 1)
    with supervised.connect() as connection:
        next(event for event in events(connection) if isinstance(event, LogLine))
        connection.send(Stop())
        connection.send(Stop())
        list(messages(connection))
    logged = supervised.wait()
    assert any(isinstance(event, DevicesFree) for event in logged)
    assert supervised.run.state() == "stopped"


def test_silent_worker_is_reported_once(start: Start) -> None:
    supervised = start("deaf", 1, "quick")
    with supervised.connect() as connection:
        warned = next(event for event in events(connection) if isinstance(event, Warned))
        assert warned.code == "silent"
        assert warned.rank == 0
        connection.send(Stop())
        list(messages(connection))
    logged = supervised.wait()
    assert [event.code for event in logged if isinstance(event, Warned)] == ["silent"]


@pytest.mark.parametrize(
    ("behavior", "keywords"),
    [
        ("exit 3", ["Rank 1", "exited with code 3", "worker-1.log", "the last words"]),
        ("raise", ["Rank 1", "ValueError: a fault of mine"]),
        ("lost", ["Rank 1", "SIGKILL"]),
        ("garbage", ["sent an invalid message"]),
    ],
)
def test_failed_worker_fails_the_run_with_a_cause(start: Start, behavior: str, keywords: list[str]) -> None:
    supervised = start(behavior, 2)
    logged = supervised.wait()
    assert supervised.process.returncode == 1
    assert supervised.run.state() == "failed"
    failed = [event for event in logged if isinstance(event, Failed)]
    assert len(failed) == 1
    assert all(keyword in failed[0].cause for keyword in keywords)
    assert isinstance(logged[-1], RunFinished)
    assert logged[-1].cause == failed[0].cause


def test_run_is_unsaved_if_a_worker_cannot_write_its_final_state(start: Start) -> None:
    supervised = start("unsaved 3", 2)
    *_, finished = supervised.wait()
    assert isinstance(finished, RunFinished)
    assert (finished.outcome, finished.cause) == ("unsaved", "The disk is full.")
    assert supervised.process.returncode == 1


def test_worker_that_does_not_exit_is_killed(start: Start) -> None:
    supervised = start("linger", 2, "quick")
    logged = supervised.wait()
    assert supervised.run.state() == "completed"
    assert isinstance(logged[-1], RunFinished)
    assert logged[-1].cause == ""


@pytest.mark.parametrize("arguments", [(), ("spawn",)])
def test_children_of_a_worker_end_with_it(start: Start, arguments: tuple[str, ...]) -> None:
    supervised = start("child", 1, *arguments)
    logged = supervised.wait()
    assert supervised.run.state() == "failed"
    line = next(event.text for event in logged if isinstance(event, LogLine))
    child = int(line.removeprefix("child "))
    wait_until(lambda: has_exited(child), "the worker's child to go")


@pytest.mark.parametrize("arguments", [(), ("spawn",)])
def test_no_worker_survives_a_killed_supervisor(start: Start, arguments: tuple[str, ...]) -> None:
    supervised = start("forever", 2, *arguments)
    wait_until(lambda: len(list(supervised.run.events())) > 10, "the training")
    workers = psutil.Process(supervised.process.pid).children(recursive=True)
    assert len(workers) >= 2
    supervised.process.kill()
    supervised.process.wait()
    wait_until_exited(workers)
    assert supervised.run.state() == "interrupted"
    stale = next(paths.runtime_folder().glob("*.sock"))
    remove_stale_sockets()
    assert not stale.exists()


def test_unreadable_job_fails_the_run() -> None:
    run = create_run(Job())
    run.job_file.write_text("training.epochs = 'many'\n")
    pid = start_supervisor(run)
    wait_until(lambda: run.state() == "failed", "the end")
    wait_until(lambda: has_exited(pid), "the supervisor to go")
    finished = run.last_event()
    assert isinstance(finished, RunFinished)
    assert "Epochs" in finished.cause
