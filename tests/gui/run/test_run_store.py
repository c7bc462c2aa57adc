"""The store against real files and real supervisors."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from pytestqt.qtbot import QtBot

from engine.contract.events import ENCODE, LogLine, StepMetrics
from engine.contract.job import Job
from engine.contract.runs import RunFolder, create_run
from gui.run.store import RunStore
from tests.engine.supervisor.supervised import Supervised
from tests.gui.run.written import a_run, job, story, write


@pytest.fixture
def store(qtbot: QtBot) -> Iterator[RunStore]:
    made = RunStore()
    yield made
    made.close()


@pytest.fixture
def supervise() -> Iterator[list[Supervised]]:
    """Supervisors put in here are killed at the end, if they still run."""
    started: list[Supervised] = []
    yield started
    for one in started:
        supervisor = one.run.supervisor()
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        if supervisor is not None:
            # A supervisor that is killed cannot take its socket away.
            Path(supervisor.endpoint.removeprefix("unix:")).unlink(missing_ok=True)


def begin(started: list[Supervised], behaviour: str, world_size: int = 1) -> Supervised:
    started.append(Supervised(behaviour, world_size))
    return started[-1]


def loaded(store: RunStore, qtbot: QtBot, run: RunFolder) -> None:
    store.open(run)
    qtbot.waitUntil(lambda: not store.loading, timeout=20_000)


@pytest.mark.parametrize(
    ("outcome", "word"),
    [("completed", "Completed"), ("stopped", "Stopped"), ("failed", "Failed"), (None, "Interrupted")],
)
def test_that_a_past_run_opens_with_its_full_curves(
    store: RunStore, qtbot: QtBot, outcome: str | None, word: str
) -> None:
    run = a_run(500, outcome)  # type: ignore[arg-type]
    os.utime(run.job_file, (0, 0))
    with qtbot.assertNotEmitted(store.finished):
        loaded(store, qtbot, run)
    assert store.status.word == word
    assert store.status.text.startswith(word)
    assert len(store.data.steps.loss) == 500
    assert not store.active


def test_that_all_of_a_log_is_told_as_soon_as_it_has_been_read(store: RunStore, qtbot: QtBot) -> None:
    run = a_run(20_000, None)
    shown: list[int] = []
    store.changed.connect(lambda: shown.append(len(store.data.steps.step)))
    loaded(store, qtbot, run)
    assert shown[-1] == 20_000
    assert shown == sorted(shown)


def test_that_opening_another_run_shows_nothing_of_the_one_before(store: RunStore, qtbot: QtBot) -> None:
    loaded(store, qtbot, a_run(100))
    with qtbot.waitSignal(store.opened):
        store.open(a_run(7))
    assert len(store.data.steps.loss) == 0
    qtbot.waitUntil(lambda: not store.loading, timeout=5000)
    assert len(store.data.steps.loss) == 7


def test_that_lines_of_a_newer_footplate_and_a_torn_end_are_passed_over(store: RunStore, qtbot: QtBot) -> None:
    run = a_run(20, None)
    with run.events_file.open("ab") as stream:
        stream.write(b'{"type":"from the future","n":900}\n{"type":"log","n":901,"te')
    os.utime(run.job_file, (0, 0))
    loaded(store, qtbot, run)
    assert len(store.data.steps.loss) == 20
    assert store.status.word == "Interrupted"


def test_that_a_long_log_never_holds_up_the_window(store: RunStore, qtbot: QtBot) -> None:
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
    timer.timeout.connect(lambda: beats.append(time.perf_counter()))
    timer.start()
    loaded(store, qtbot, run)
    timer.stop()
    assert len(store.data.steps.loss) == 200_000
    gaps = sorted(after - before for before, after in pairwise(beats))
    assert len(gaps) > 10
    # The median, since other programs take their turns on the same cores.
    assert gaps[len(gaps) // 2] < 0.05


def test_that_a_run_is_followed_live_and_stops_when_told(
    store: RunStore, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    one = begin(supervise, "forever")
    store.open(one.run)
    assert store.status.word == "Starting"
    qtbot.waitUntil(lambda: store.status.word == "Running" and len(store.data.steps.loss) > 5, timeout=20_000)
    assert store.active
    with qtbot.waitSignal(store.finished, timeout=20_000) as ended:
        store.stop()
        assert store.status.word == "Stopping"
    assert ended.args == ["stopped"]
    assert store.status.text.startswith("Stopped after")
    assert store.status.devices_free
    assert one.process.wait(20) is not None
    assert len(store.data.steps.loss) == sum(isinstance(event, StepMetrics) for event in one.run.events())


def test_that_a_run_is_asked_to_read_with_more_loader_workers(
    store: RunStore, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    store.open(begin(supervise, "forever").run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 0, timeout=20_000)
    store.use_loader_workers(5)
    qtbot.waitUntil(lambda: "Asked to use 5 loader workers" in [line.text for line in store.data.lines], timeout=20_000)
    with qtbot.waitSignal(store.finished, timeout=20_000):
        store.stop()


def test_that_a_run_told_to_stop_before_it_can_be_reached_stops(
    store: RunStore, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    one = begin(supervise, "forever")
    store.open(one.run)
    with qtbot.waitSignal(store.finished, timeout=30_000) as ended:
        store.stop()
    assert ended.args == ["stopped"]


def test_that_a_supervisor_that_is_killed_leaves_an_interrupted_run(
    store: RunStore, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    one = begin(supervise, "forever")
    store.open(one.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 2, timeout=20_000)
    with qtbot.waitSignal(store.finished, timeout=20_000) as ended:
        one.process.send_signal(signal.SIGKILL)
        one.process.wait()
    assert ended.args == ["interrupted"]
    assert store.status.text.startswith("Interrupted after")


def test_that_a_failing_run_tells_its_cause(store: RunStore, qtbot: QtBot, supervise: list[Supervised]) -> None:
    one = begin(supervise, "raise")
    store.open(one.run)
    with qtbot.waitSignal(store.finished, timeout=20_000) as ended:
        pass
    assert ended.args == ["failed"]
    assert "a fault of mine" in store.status.text


def test_that_two_stores_see_the_same_run_and_one_that_comes_late_sees_it_all(
    store: RunStore, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    one = begin(supervise, "forever")
    store.open(one.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 10, timeout=20_000)
    late = RunStore()
    try:
        late.open(one.run)
        qtbot.waitUntil(lambda: len(late.data.steps.loss) > 10, timeout=20_000)
        assert late.data.steps.step.values[0] == 1
        store.close()
        with qtbot.waitSignal(late.finished, timeout=20_000):
            late.stop()
    finally:
        late.close()


def test_that_letting_go_of_a_run_leaves_it_running(store: RunStore, qtbot: QtBot, supervise: list[Supervised]) -> None:
    one = begin(supervise, "forever")
    store.open(one.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 2, timeout=20_000)
    store.close()
    assert store.status.word == "Idle"
    assert one.run.state() == "running"


def test_that_a_flood_arrives_whole_though_the_window_reads_slowly(
    store: RunStore, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    """The supervisor spares a slow reader some step metrics; the file has them."""
    one = begin(supervise, "flood 60000")
    store.open(one.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 100, timeout=20_000)
    # A window that does not get to its socket for a while.
    written = threading.Event()
    while not written.wait(0.05):
        last = one.run.last_event()
        if isinstance(last, LogLine) and "60000" in last.text:
            written.set()
    with qtbot.waitSignal(store.finished, timeout=60_000):
        store.stop()
    assert store.data.steps.step.values.tolist() == list(range(1, 60_001))


def test_that_changes_are_told_at_most_ten_times_a_second(
    store: RunStore, qtbot: QtBot, supervise: list[Supervised]
) -> None:
    one = begin(supervise, "forever")
    told: list[float] = []
    store.changed.connect(lambda: told.append(time.monotonic()))
    store.open(one.run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 60, timeout=20_000)
    store.close()
    gaps = [after - before for before, after in pairwise(told[1:-1])]
    assert min(gaps) > 0.09


def test_that_a_run_without_a_reachable_supervisor_is_followed_through_its_file(store: RunStore, qtbot: QtBot) -> None:
    events = list(story(job(), 12, "completed"))
    run = create_run(Job(dataset="/data/flowers"))
    write(run.events_file, events[:10])
    store.open(run)
    qtbot.waitUntil(lambda: len(store.data.steps.loss) > 0, timeout=5000)
    assert store.active
    with qtbot.waitSignal(store.finished, timeout=10_000) as ended:
        write(run.events_file, events[10:], first_n=11)
    assert ended.args == ["completed"]
    assert len(store.data.steps.loss) == 12


def test_that_a_run_that_is_resumed_goes_on_with_its_curves(store: RunStore, qtbot: QtBot) -> None:
    run = a_run(20, "stopped")
    loaded(store, qtbot, run)
    first = store.data.last_n
    again = [event for event in story(job(), 30, "completed") if not isinstance(event, StepMetrics) or event.step > 20]
    write(run.events_file, again, first_n=first + 1)
    loaded(store, qtbot, run)
    assert store.data.steps.step.values.tolist() == list(range(1, 31))
    assert store.status.word == "Completed"
    assert (store.data.steps.seconds.values >= 0).all()


def test_that_stopping_a_past_run_or_none_does_nothing(store: RunStore, qtbot: QtBot) -> None:
    store.stop()
    assert store.status.word == "Idle"
    loaded(store, qtbot, a_run(8))
    store.stop()
    assert store.status.word == "Completed"
