"""Run session with real files and real supervisors."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from engine.contract.events import ENCODE, StepMetrics
from engine.contract.job import Job
from engine.runs.folder import RunFolder, SupervisorFile, create_run
from engine.runs.notes import change_notes
from engine.runs.queue import list_holders
from engine.runs.slurm_job import SlurmJob, write_slurm
from gui.runs.table import format_state
from gui.sources.run_link import LiveConnection
from gui.sources.run_reader import PollResult, RunReader
from gui.sources.run_session import RunSession
from tests.engine.supervisor.supervised import Supervised
from tests.gui.sources.written_runs import job, list_run_events, supervise_here, write, write_run
from tests.support.waiting import wait_until


@pytest.fixture
def store(qtbot: QtBot) -> Iterator[RunSession]:
    session = RunSession()
    yield session
    session.finish()  # as the window does, because threads must not report to a deleted object
    session.close()


@pytest.fixture
def supervise() -> Iterator[list[Supervised]]:
    """Yield a list for supervisors. Those that a test adds are killed after the test."""
    started: list[Supervised] = []
    yield started
    for supervised in started:
        supervisor = supervised.run.supervisor()
        if supervised.process.poll() is None:
            supervised.process.kill()
        supervised.process.wait()
        if supervisor is not None:
            # A killed supervisor can't remove its socket.
            Path(supervisor.endpoint.removeprefix("unix:")).unlink(missing_ok=True)


def start_supervised(started: list[Supervised], behavior: str) -> Supervised:
    started.append(Supervised(behavior, 1))
    return started[-1]


def wait_until_loaded(store: RunSession, qtbot: QtBot, run: RunFolder) -> None:
    store.open(run)
    qtbot.waitUntil(lambda: not store.loading)


@pytest.mark.parametrize(
    ("outcome", "label"),
    [("completed", "Completed"), ("stopped", "Stopped"), ("failed", "Failed"), (None, "Interrupted")],
)
def test_session_opens_past_run(store: RunSession, qtbot: QtBot, outcome: str | None, label: str) -> None:
    run = write_run(500, outcome)  # type: ignore[arg-type]
    os.utime(run.job_file, (0, 0))
    with qtbot.assertNotEmitted(store.finished):
        wait_until_loaded(store, qtbot, run)
    assert store.status.label == label
    assert store.status.text.startswith(label)
    assert len(store.data.steps.loss) == 500
    assert not store.active


def test_session_reports_complete_log(store: RunSession, qtbot: QtBot) -> None:
    run = write_run(20_000, None)
    counts: list[int] = []
    store.changed.connect(lambda: counts.append(len(store.data.steps.step)))
    wait_until_loaded(store, qtbot, run)
    assert counts[-1] == 20_000
    assert counts == sorted(counts)


def test_session_opens_another_run_empty(store: RunSession, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until_loaded(store, qtbot, write_run(100, "failed"))
    monkeypatch.setattr("gui.sources.run_session._GRACE_S", 0.0)
    opened, other = [], write_run(7)
    store.opened.connect(lambda: opened.append(store.run))
    store.open(other)
    assert opened == [other], "views show no empty page in between"
    assert len(store.data.steps.loss) == 0
    assert store.status.label != "Failed"
    qtbot.waitUntil(lambda: not store.loading)
    assert len(store.data.steps.loss) == 7


def test_session_reads_long_log_without_blocking(store: RunSession, qtbot: QtBot) -> None:
    run = create_run(job())
    step = StepMetrics(
        n=1,
        time=1.0,
        epoch=1,
        step=1,
        loss=1.0,
        learning_rate=0.1,
        images_per_second=1.0,
        data_wait_s=0.0,
        compute_s=0.0,
    )
    with run.events_file.open("wb") as stream:
        for n in range(1, 200_001):
            step.n = step.step = n
            stream.write(ENCODE.encode(step) + b"\n")
    os.utime(run.job_file, (0, 0))
    beats: list[float] = []
    timer = QTimer(interval=0)
    timer.timeout.connect(lambda: beats.append(time.thread_time()))
    timer.start()
    wait_until_loaded(store, qtbot, run)
    timer.stop()
    assert len(store.data.steps.loss) == 200_000
    gaps = sorted(after - before for before, after in pairwise(beats))
    assert len(gaps) > 10
    assert gaps[len(gaps) // 2] < 0.05, "of this thread's own time, which other work on the machine does not change"


def test_session_follows_run_until_stopped(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    supervised = start_supervised(supervise, "forever")
    store.open(supervised.run)
    assert store.status.label == "Starting"
    qtbot.waitUntil(lambda: store.status.label == "Running" and len(store.data.steps.loss) > 5)
    assert store.active
    with qtbot.waitSignal(store.finished) as ended:
        store.stop()
        assert store.status.label == "Stopping"
    assert ended.args == ["stopped"]
    assert store.status.text.startswith("Stopped after")
    assert store.status.devices_free
    assert supervised.process.wait(120) is not None
    assert len(store.data.steps.loss) == sum(isinstance(event, StepMetrics) for event in supervised.run.events())


def test_session_changes_loader_workers(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    store.open(start_supervised(supervise, "forever").run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 0)
    store.use_loader_workers(5)
    qtbot.waitUntil(lambda: "Asked to use 5 loader workers" in [line.text for line in store.data.lines])
    with qtbot.waitSignal(store.finished):
        store.stop()


@pytest.mark.parametrize(("asked", "outcome"), [("stop", "stopped"), ("pause", "paused")])
def test_session_sends_command_once_reachable(
    store: RunSession, qtbot: QtBot, supervise: list[Supervised], asked: str, outcome: str
) -> None:
    supervised = start_supervised(supervise, "forever")
    store.open(supervised.run)
    with qtbot.waitSignal(store.finished) as ended:
        getattr(store, asked)()
    assert ended.args == [outcome]


def test_session_killed_supervisor_is_interrupted(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    supervised = start_supervised(supervise, "forever")
    store.open(supervised.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 2)
    with qtbot.waitSignal(store.finished) as ended:
        supervised.process.send_signal(signal.SIGKILL)
        supervised.process.wait()
    assert ended.args == ["interrupted"]
    assert store.status.text.startswith("Interrupted after")


def test_session_reports_failure_cause(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    supervised = start_supervised(supervise, "raise")
    store.open(supervised.run)
    with qtbot.waitSignal(store.finished) as ended:
        pass
    assert ended.args == ["failed"]
    assert "a fault of mine" in store.status.text


def test_session_late_client_sees_all_events(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    supervised = start_supervised(supervise, "forever")
    store.open(supervised.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 10)
    late = RunSession()
    try:
        late.open(supervised.run)
        qtbot.waitUntil(lambda: len(late.data.steps.loss) > 10)
        assert late.data.steps.step.values[0] == 1
        store.close()
        with qtbot.waitSignal(late.finished):
            late.stop()
    finally:
        late.finish()
        late.close()


def test_session_close_leaves_run_running(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    supervised = start_supervised(supervise, "forever")
    store.open(supervised.run)
    connection = store.findChild(LiveConnection)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 2 and connection.is_open)
    with qtbot.waitSignals([store.opened, store.changed]):
        store.close()
    assert not connection.is_open
    assert (store.status.label, len(store.data.steps.loss)) == ("Idle", 0)
    with qtbot.assertNotEmitted(store.opened):
        store.close()
    assert supervised.run.state() == "running"


def test_session_slow_reader_gets_all_events(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    """Let the session read so slowly that the supervisor skips step metrics.

    The session must then read the skipped metrics from the log file.
    """
    supervised = start_supervised(supervise, "flood 60000")
    store.open(supervised.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 100)
    # Simulate a window that doesn't read its socket for a while. Other events may follow the last line of the flood.
    wait_until(lambda: b"after step 60000" in supervised.run.events_file.read_bytes(), "the flood")
    with qtbot.waitSignal(store.finished):
        store.stop()
    assert store.data.steps.step.values.tolist() == list(range(1, 60_001))


def test_session_limits_rate_of_changes(store: RunSession, qtbot: QtBot, supervise: list[Supervised]) -> None:
    supervised = start_supervised(supervise, "forever")
    times: list[float] = []
    store.changed.connect(lambda: times.append(time.monotonic()))
    store.open(supervised.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 60)
    store.close()
    gaps = [after - before for before, after in pairwise(times[1:-1])]
    assert min(gaps) > 0.09


def test_session_unreachable_supervisor_is_followed_by_log(store: RunSession, qtbot: QtBot) -> None:
    events = list(list_run_events(job(), 12, "completed"))
    run = create_run(Job.from_fields(dataset="/data/flowers"))
    write(run.events_file, events[:10])
    store.open(run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 0)
    assert store.active
    ended: list[str] = []
    store.finished.connect(ended.append)
    write(run.events_file, events[10:], first_n=11)
    qtbot.waitUntil(lambda: ended == ["completed"])
    assert len(store.data.steps.loss) == 12
    with qtbot.waitSignal(store.changed):
        run.write_supervisor(SupervisorFile(pid=1, start_time=1.0, endpoint="unix:/nowhere"))  # as if it was resumed
    assert ended == ["completed"]


def test_session_reports_end_before_log_is_read(
    store: RunSession, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(list_run_events(job(), 12, "completed"))
    run = create_run(Job.from_fields(dataset="/data/flowers"))
    write(run.events_file, events[:10])
    read = RunReader.read

    def read_and_end(reader: RunReader, seconds: float, connect_after: int) -> PollResult:
        result = read(reader, seconds, connect_after)
        if result.job is not None:  # the first read, which gets only the state
            write(run.events_file, events[10:], first_n=11)
        return result

    monkeypatch.setattr(RunReader, "read", read_and_end)
    with qtbot.waitSignal(store.finished, timeout=10_000) as ended:
        store.open(run)
    assert ended.args == ["completed"]


def test_session_follows_resumed_run(store: RunSession, qtbot: QtBot) -> None:
    run = write_run(20, "stopped")
    wait_until_loaded(store, qtbot, run)
    last = store.data.last_number
    ended: list[str] = []
    store.finished.connect(ended.append)
    with qtbot.assertNotEmitted(store.opened):
        write(run.events_file, list_run_events(job(), 30, "completed", from_step=15, execution=2), first_n=last + 1)
        qtbot.waitUntil(lambda: store.status.label == "Completed")
    assert store.data.steps.step.values.tolist() == list(range(1, 31))
    assert (store.data.steps.seconds.values >= 0).all()
    assert store.data.executions == 2


def test_session_reopening_same_run_keeps_data(store: RunSession, qtbot: QtBot) -> None:
    run = write_run(20, "stopped")
    wait_until_loaded(store, qtbot, run)
    data = store.data
    with qtbot.assertNotEmitted(store.opened):
        store.open(RunFolder(run.path))
    assert store.data is data


def test_session_started_run_is_starting(store: RunSession, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(20, "paused")
    wait_until_loaded(store, qtbot, run)
    assert store.status.label == "Paused"
    last = store.data.last_number
    monkeypatch.setattr("gui.sources.run_session._START_S", 3600.0)
    store.mark_starting()
    qtbot.waitUntil(lambda: store.status.label == "Starting")
    assert store.active
    write(
        run.events_file,
        list_run_events(job(), 30, "failed", from_step=15, execution=2, cause="a fault"),
        first_n=last + 1,
    )
    qtbot.waitUntil(lambda: store.status.text == "Failed: a fault")  # before the session gives up
    monkeypatch.setattr("gui.sources.run_session._START_S", 0.2)
    store.mark_starting()
    qtbot.waitUntil(lambda: store.status.label == "Starting")
    qtbot.waitUntil(lambda: store.status.text == "Failed: a fault")


def test_session_deleted_run_stays_on_screen(store: RunSession, qtbot: QtBot) -> None:
    run = write_run(20, "completed")
    wait_until_loaded(store, qtbot, run)
    shutil.rmtree(run.path)
    qtbot.wait(500)  # time for two polls
    store.request_update()
    with qtbot.waitSignal(store.changed):
        pass
    assert store.status.label == "Completed"


def test_session_pauses_and_follows_resumed_run(
    store: RunSession, qtbot: QtBot, supervise: list[Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervised = start_supervised(supervise, "forever")
    store.open(supervised.run)
    qtbot.waitUntil(lambda: store.status.label == "Running" and len(store.data.steps.loss) > 5)
    with qtbot.waitSignal(store.finished) as ended:
        store.pause()
        assert store.status.label == "Pausing"
    assert ended.args == ["paused"]
    assert (store.status.label, store.status.devices_free, store.status.can_resume) == ("Paused", True, True)
    supervised.process.wait(120)
    supervised.process = supervised.start()
    qtbot.waitUntil(lambda: store.data.executions == 2 and store.status.label == "Running")
    assert store.active
    with qtbot.waitSignal(store.finished) as ended:
        supervised.process.send_signal(signal.SIGSTOP)  # it must receive the stop request before it has paused
        store.pause()
        store.stop()
        monkeypatch.setattr("gui.sources.run_link._PARTING_S", 0.1)
        store.finish()
        supervised.process.send_signal(signal.SIGCONT)
        assert store.status.label == "Stopping"
    assert ended.args == ["stopped"]
    steps = [event for event in supervised.run.events() if isinstance(event, StepMetrics)]
    assert store.data.steps.seconds.values[-1] < steps[-1].time - steps[0].time + 60
    assert store.data.last_number == sum(1 for _ in supervised.run.events())


def test_session_queued_run_names_others_and_stops(
    store: RunSession, qtbot: QtBot, supervise: list[Supervised], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gui.sources.run_session._USERS_MS", 50)
    blocking = start_supervised(supervise, "forever")
    qtbot.waitUntil(lambda: list_holders() == {"cpu": (blocking.run.run_id,)})
    supervised = start_supervised(supervise, "forever 2")
    store.open(supervised.run)
    qtbot.waitUntil(lambda: store.status.label == "Waiting")
    texts: list[str] = []
    store.changed.connect(lambda: texts.append(store.status.text))
    qtbot.waitUntil(lambda: store.status.text == "Waiting · next in the queue for the CPU, behind “forever”")
    assert store.status.devices_free
    change_notes(blocking.run.path, name="renamed")
    qtbot.waitUntil(lambda: texts[-1:] == ["Waiting · next in the queue for the CPU, behind “renamed”"])
    with qtbot.waitSignal(store.finished) as ended:
        store.stop()
    assert ended.args == ["stopped"]
    assert blocking.run.state() == "running"


def test_session_queued_run_starts_once_devices_are_free(
    store: RunSession, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    blocking = start_supervised(supervise, "forever")
    qtbot.waitUntil(lambda: list_holders() == {"cpu": (blocking.run.run_id,)})
    store.open(start_supervised(supervise, "train 40").run)
    qtbot.waitUntil(lambda: store.status.label == "Waiting")
    with qtbot.waitSignal(store.finished) as ended:
        blocking.process.terminate()
    assert ended.args == ["completed"]
    assert len(store.data.steps.step) == 40


@pytest.mark.parametrize(
    ("requests", "label"), [(["pause"], "Pausing"), (["stop"], "Stopping"), (["pause", "stop"], "Stopping")]
)
def test_session_shows_pending_request(store: RunSession, qtbot: QtBot, requests: list[str], label: str) -> None:
    wait_until_loaded(store, qtbot, supervise_here(write_run(20, None)))
    assert store.status.label == "Running"
    for request in requests:
        with qtbot.waitSignal(store.changed):
            getattr(store, request)()
    assert store.status.label == label
    wait_until_loaded(store, qtbot, supervise_here(write_run(8, None)))
    assert store.status.label == "Running"  # the request was for the other run


def test_session_stop_of_ended_run_does_nothing(store: RunSession, qtbot: QtBot) -> None:
    store.stop()
    assert store.status.label == "Idle"
    wait_until_loaded(store, qtbot, write_run(8))
    store.stop()
    assert store.status.label == "Completed"


def test_session_follows_slurm_run_by_folder(store: RunSession, qtbot: QtBot) -> None:
    run = create_run(job())
    write_slurm(run.path, SlurmJob(job_id=7, reason="Priority", place=2))
    store.open(run)
    qtbot.waitUntil(lambda: store.status.label == "Waiting")
    assert store.status.text == "Waiting · SLURM job 7 is pending: Priority, place 2"
    with qtbot.waitSignal(store.message) as message:
        store.pause()
    assert "can only be stopped" in message.args[0]
    on_a_node = SupervisorFile(pid=os.getpid(), start_time=1.0, endpoint="unix:/nowhere")
    run.write_supervisor(on_a_node)
    write_slurm(run.path, SlurmJob(job_id=7, state="RUNNING"))
    events = list(list_run_events(job(), 8, "paused"))
    write(run.events_file, events[:-2])
    qtbot.waitUntil(lambda: store.data.step == 8 and store.status.label == "Running")
    assert format_state(run.summary()) == "Running in SLURM"
    with qtbot.waitSignal(store.finished):
        write(run.events_file, events[-2:], len(events) - 1)
    write_slurm(run.path, SlurmJob(job_id=7, reason="Requeued"))
    qtbot.waitUntil(lambda: store.status.label == "Waiting")
    assert format_state(run.summary()) == "Waiting in SLURM"
