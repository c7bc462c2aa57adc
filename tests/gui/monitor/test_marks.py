"""Where runs began and ended, read from their folders."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator

import psutil
import pytest
from pytestqt.qtbot import QtBot

from engine.contract import paths
from engine.contract.events import RunFinished
from engine.contract.runs import RunFolder, SupervisorFile
from gui.monitor.marks import RunMarks
from tests.gui.devices.snapshots import UUIDS
from tests.gui.run.written import a_run, write


@pytest.fixture
def marks(qtbot: QtBot) -> Iterator[RunMarks]:
    made = RunMarks()
    yield made
    made.stop()


def read(marks: RunMarks, qtbot: QtBot) -> None:
    with qtbot.waitSignal(marks.changed, timeout=20_000):
        marks.refresh()


def going_on(**changes: object) -> RunFolder:
    """A run whose supervisor is this process."""
    run = a_run(20, None, **changes)
    own = psutil.Process()
    run.write_supervisor(SupervisorFile(pid=own.pid, start_time=own.create_time(), endpoint="unix:/nowhere"))
    return run


def test_that_a_run_that_has_ended_has_a_beginning_and_an_end(marks: RunMarks, qtbot: QtBot) -> None:
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


def test_that_a_run_going_on_holds_its_gpus_until_it_ends(marks: RunMarks, qtbot: QtBot) -> None:
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


def test_that_a_killed_run_ended_with_its_last_word(marks: RunMarks, qtbot: QtBot) -> None:
    run = a_run(40, None)
    run.write_supervisor(SupervisorFile(pid=os.getpid(), start_time=1.0, endpoint="unix:/nowhere"))
    last = run.last_event()
    read(marks, qtbot)
    assert last is not None
    assert (marks.marks[0].state, marks.marks[0].end) == ("interrupted", last.time)


def test_that_runs_of_long_ago_are_no_marks_and_new_ones_come_in_order(marks: RunMarks, qtbot: QtBot) -> None:
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


def test_that_folders_are_looked_at_by_themselves_once_started(
    marks: RunMarks, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks._timer.setInterval(50)
    marks.start()
    with qtbot.waitSignal(marks.changed, timeout=20_000):
        a_run(8, name="flowers")
    marks.stop()
    assert not marks._timer.isActive()


def test_that_being_told_twice_reads_twice(marks: RunMarks, qtbot: QtBot) -> None:
    a_run(8, name="first")
    with qtbot.waitSignal(marks.changed, timeout=20_000):
        marks.refresh()
        a_run(8, name="second")
        marks.refresh()
    qtbot.waitUntil(lambda: len(marks.marks) == 2, timeout=20_000)


def test_that_a_home_that_cannot_be_read_has_no_marks(marks: RunMarks, qtbot: QtBot) -> None:
    a_run(8, name="first")
    read(marks, qtbot)
    folder = paths.runs_folder()
    shutil.rmtree(folder)
    folder.write_text("not a folder")
    read(marks, qtbot)
    assert marks.marks == ()
