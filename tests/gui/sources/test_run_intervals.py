"""Where runs began and ended, read from their folders."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.events import PhaseChanged, RunFinished, Waiting
from engine.runs.folder import RunFolder, SupervisorFile, create_run, process_start
from engine.runs.notes import change_notes
from gui.sources.run_intervals import RunIntervals
from gui.sources.run_list import RunList
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.sources.written_runs import NESTED_TOO_DEEP, a_run, job, story, write


@pytest.fixture
def marks(qtbot: QtBot) -> Iterator[RunIntervals]:
    runs = RunList()
    made = RunIntervals(runs)
    runs.complete.connect(lambda read: made.show(read.intervals, read.unread))
    yield made
    runs.close()


def source(marks: RunIntervals) -> RunList:
    runs = marks.parent()
    assert isinstance(runs, RunList)
    return runs


def read(marks: RunIntervals, qtbot: QtBot) -> None:
    with qtbot.waitSignal(marks.changed):
        source(marks).refresh()


def replace(file: Path, content: str) -> None:
    """As whoever writes a run's files does."""
    temporary = file.with_suffix(".part")
    temporary.write_text(content)
    temporary.replace(file)


def going_on(**changes: object) -> RunFolder:
    """A run whose supervisor is this process."""
    run = a_run(20, None, **changes)
    run.write_supervisor(
        SupervisorFile(pid=os.getpid(), start_time=process_start(os.getpid()), endpoint="unix:/nowhere")
    )
    return run


def test_that_a_run_that_has_ended_has_a_beginning_and_an_end(marks: RunIntervals, qtbot: QtBot) -> None:
    run = a_run(40, "failed", cause="a fault", name="flowers", devices=(UUIDS[0], "cpu", "cpu"))
    summary = run.summary()
    read(marks, qtbot)
    (mark,) = marks.marks
    assert summary is not None
    assert summary.seconds is not None
    assert (mark.run_id, mark.name, mark.state) == (run.run_id, "flowers", "failed")
    assert mark.devices == (UUIDS[0], "cpu")
    assert mark.start == summary.started
    assert mark.end == pytest.approx(summary.started + summary.seconds)
    assert not mark.going_on
    assert marks.holding() == {}
    assert marks.supervisors() == {}


def test_that_a_run_going_on_holds_its_gpus_until_it_ends(marks: RunIntervals, qtbot: QtBot) -> None:
    run = going_on(name="flowers", devices=(UUIDS[0], UUIDS[1], "cpu"))
    read(marks, qtbot)
    assert marks.holding() == {UUIDS[0]: "flowers", UUIDS[1]: "flowers"}
    assert marks.supervisors() == {os.getpid(): "flowers"}
    assert marks.marks[0].going_on
    write(run.events_file, [RunFinished(time=time.time(), outcome="stopped")], first_n=1000)
    read(marks, qtbot)
    assert marks.holding() == {}
    assert marks.supervisors() == {}
    assert (marks.marks[0].state, marks.marks[0].going_on) == ("stopped", False)


def test_that_a_killed_run_ended_with_its_last_word(marks: RunIntervals, qtbot: QtBot) -> None:
    run = a_run(40, None)
    run.write_supervisor(SupervisorFile(pid=os.getpid(), start_time=1.0, endpoint="unix:/nowhere"))
    last = run.last_event()
    read(marks, qtbot)
    assert last is not None
    assert (marks.marks[0].state, marks.marks[0].end) == ("interrupted", last.time)


def test_that_runs_of_long_ago_are_no_marks_and_new_ones_come_in_order(marks: RunIntervals, qtbot: QtBot) -> None:
    old = a_run(40, None, name="old")
    old.events_file.unlink()
    old.write_supervisor(SupervisorFile(pid=1, start_time=1.0, endpoint="unix:/nowhere"))
    os.utime(old.job_file, (1000, 1000))
    a_run(40, name="first")
    read(marks, qtbot)
    assert [mark.name for mark in marks.marks] == ["first"]
    second = a_run(40, name="second")
    read(marks, qtbot)
    assert [mark.name for mark in marks.marks] == ["first", "second"]
    shutil.rmtree(second.path)
    read(marks, qtbot)
    assert [mark.name for mark in marks.marks] == ["first"]


def test_that_a_run_whose_files_lead_astray_keeps_its_marks_and_the_others_are_read_on(
    marks: RunIntervals, qtbot: QtBot
) -> None:
    damaged, empty = a_run(40, None, name="damaged"), going_on(name="empty")
    read(marks, qtbot)
    assert [mark.name for mark in marks.marks] == ["damaged", "empty"]
    whole = damaged.job_file.read_text()
    replace(damaged.job_file, NESTED_TOO_DEEP)
    replace(empty.events_file, "")
    a_run(40, name="new")
    read(marks, qtbot)
    assert [mark.name for mark in marks.marks] == ["damaged", "new", "empty"]
    assert list(marks.unread) == [damaged.run_id]
    assert marks.unread[damaged.run_id].startswith(f"{damaged.job_file} is not valid TOML")
    replace(damaged.job_file, whole)
    read(marks, qtbot)
    assert not marks.unread


def test_that_a_run_that_is_named_otherwise_has_marks_of_that_name(marks: RunIntervals, qtbot: QtBot) -> None:
    run = a_run(40, name="flowers")
    read(marks, qtbot)
    change_notes(run.path, name="roses")
    read(marks, qtbot)
    assert [mark.name for mark in marks.marks] == ["roses"]


def test_that_every_execution_of_a_run_has_a_beginning_and_an_end_of_its_own(marks: RunIntervals, qtbot: QtBot) -> None:
    now = time.time()
    run = create_run(job(name="flowers"))
    first = list(story(job(devices=(UUIDS[0],)), 40, "paused", begun=now - 9000))
    second = list(story(job(devices=("cpu",)), 40, None, begun=now - 6000, from_step=20, execution=2))
    third = list(story(job(devices=(UUIDS[1],)), 40, "stopped", begun=now - 3000, from_step=40, execution=3))
    write(run.events_file, [*first, *second, *third])
    read(marks, qtbot)
    assert [(mark.devices, mark.state, mark.start) for mark in marks.marks] == [
        ((UUIDS[0],), "paused", now - 9000),
        (("cpu",), "interrupted", now - 6000),
        ((UUIDS[1],), "stopped", now - 3000),
    ]
    assert [mark.end for mark in marks.marks] == [part[-1].time for part in (first, second, third)]
    assert {(mark.run_id, mark.name) for mark in marks.marks} == {(run.run_id, "flowers")}


def test_that_a_paused_run_holds_nothing_until_it_goes_on(marks: RunIntervals, qtbot: QtBot) -> None:
    run = a_run(20, "paused", name="flowers", devices=(UUIDS[0],))
    read(marks, qtbot)
    assert (marks.marks[0].state, marks.holding()) == ("paused", {})
    last = run.last_event()
    assert last is not None
    goes_on = list(story(job(devices=(UUIDS[1],)), 40, None, begun=time.time(), from_step=20, execution=2))
    own = os.getpid()
    run.write_supervisor(SupervisorFile(pid=own, start_time=process_start(own), endpoint="unix:/nowhere", execution=2))
    assert run.state() == "starting"  # it has not said so in its log
    source(marks).refresh()
    qtbot.waitUntil(lambda: not source(marks).reading)
    assert marks.holding() == {}
    write(run.events_file, goes_on, first_n=last.n + 1)
    read(marks, qtbot)
    assert marks.holding() == {UUIDS[1]: "flowers"}
    assert [mark.state for mark in marks.marks] == ["paused", "running"]


def test_that_a_run_in_line_holds_nothing_and_begins_when_it_comes_to_its_devices(
    marks: RunIntervals, qtbot: QtBot
) -> None:
    now = time.time()
    started, *rest = story(job(devices=(UUIDS[0],)), 40, None, begun=now - 100)
    started.time = now - 5000
    run = create_run(job(name="flowers", devices=(UUIDS[0],)))
    own = os.getpid()
    run.write_supervisor(SupervisorFile(pid=own, start_time=process_start(own), endpoint="unix:/nowhere"))
    starting = PhaseChanged(time=now - 5000, phase="starting")
    write(
        run.events_file, [started, starting, Waiting(time=now - 4999, position=2), Waiting(time=now - 4000, position=1)]
    )
    read(marks, qtbot)
    (waiting,) = marks.marks
    assert (waiting.state, waiting.devices, marks.holding()) == ("waiting", (), {})
    assert marks.supervisors() == {own: "flowers"}
    write(run.events_file, [PhaseChanged(time=now - 100, phase="starting"), *rest], first_n=5)
    read(marks, qtbot)
    (running,) = marks.marks
    assert (running.state, running.start, marks.holding()) == ("running", now - 100, {UUIDS[0]: "flowers"})
