"""Time intervals of the executions of all runs, read from the run folders."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.events import LogLine, PhaseChanged, RunFinished, Waiting
from engine.runs.folder import SupervisorFile, create_run
from engine.runs.notes import change_notes
from engine.runs.slurm_job import SlurmJob, write_slurm
from gui.sources.run_intervals import RunIntervals
from gui.sources.run_list import RunList
from tests.gui.sources.devices.snapshots import UUIDS
from tests.gui.sources.written_runs import (
    NESTED_TOO_DEEP,
    append_events,
    job,
    list_run_events,
    supervise_here,
    write,
    write_run,
)


@pytest.fixture
def intervals(qtbot: QtBot) -> Iterator[RunIntervals]:
    runs = RunList()
    created = RunIntervals(runs)
    runs.complete.connect(lambda read: created.replace(read.intervals, read.unread))
    yield created
    runs.close()


def read_run_names(intervals: RunIntervals, qtbot: QtBot) -> list[str]:
    """Read the executions of all runs. Return the run's name for each execution."""
    with qtbot.waitSignal(intervals.changed):
        intervals.parent().refresh()
    return [interval.name for interval in intervals.intervals]


def replace(file: Path, content: str) -> None:
    temporary = file.with_suffix(".part")
    temporary.write_text(content)
    temporary.replace(file)


def test_interval_of_ended_run(intervals: RunIntervals, qtbot: QtBot) -> None:
    run = write_run(40, "failed", cause="a fault", name="flowers", devices=(UUIDS[0], "cpu", "cpu"))
    summary = run.summary()
    read_run_names(intervals, qtbot)
    (interval,) = intervals.intervals
    assert summary.seconds is not None
    assert (interval.run_id, interval.name, interval.state) == (run.run_id, "flowers", "failed")
    assert interval.devices == (UUIDS[0], "cpu")
    assert interval.start == summary.started
    assert interval.end == pytest.approx(summary.started + summary.seconds)
    assert not interval.is_active
    with qtbot.assertNotEmitted(intervals.changed):
        intervals.replace(intervals.intervals, intervals.unread)
    assert intervals.run_names_by_gpu() == {}


def test_interval_of_active_run_holds_gpus(intervals: RunIntervals, qtbot: QtBot) -> None:
    run = supervise_here(write_run(20, None, name="flowers", devices=(UUIDS[0], UUIDS[1], "cpu")))
    read_run_names(intervals, qtbot)
    assert intervals.run_names_by_gpu() == {UUIDS[0]: "flowers", UUIDS[1]: "flowers"}
    assert (intervals.intervals[0].is_active, intervals.intervals[0].supervisor) == (True, os.getpid())
    write_slurm(run.path, SlurmJob(job_id=7, state="RUNNING"))
    read_run_names(intervals, qtbot)
    assert (intervals.intervals[0].is_active, intervals.intervals[0].supervisor) == (True, None)
    append_events(run, RunFinished(time=time.time(), outcome="stopped"))
    read_run_names(intervals, qtbot)
    assert intervals.run_names_by_gpu() == {}
    assert (intervals.intervals[0].state, intervals.intervals[0].is_active) == ("stopped", False)


def test_interval_of_killed_run_ends_at_last_event(intervals: RunIntervals, qtbot: QtBot) -> None:
    run = write_run(40, None)
    run.write_supervisor(SupervisorFile(pid=os.getpid(), start_time=1.0, endpoint="unix:/nowhere"))
    last = run.last_event()
    read_run_names(intervals, qtbot)
    assert (intervals.intervals[0].state, intervals.intervals[0].end) == ("interrupted", last.time)


def test_interval_of_run_without_events_names_each_device_once(intervals: RunIntervals, qtbot: QtBot) -> None:
    create_run(job(devices=("cpu", "cpu")))
    read_run_names(intervals, qtbot)
    assert [(each.state, each.devices) for each in intervals.intervals] == [("starting", ("cpu",))]


def test_interval_does_not_end_before_its_start(intervals: RunIntervals, qtbot: QtBot) -> None:
    run = write_run(8, None)
    start = run.summary().started
    append_events(run, RunFinished(time=start - 3600, outcome="completed"))  # the clock was set back
    read_run_names(intervals, qtbot)
    assert (intervals.intervals[0].start, intervals.intervals[0].end) == (start, start)


def test_intervals_drop_old_runs_and_are_sorted(intervals: RunIntervals, qtbot: QtBot) -> None:
    old = write_run(40, None, name="old")
    old.events_file.unlink()
    old.write_supervisor(SupervisorFile(pid=1, start_time=1.0, endpoint="unix:/nowhere"))
    os.utime(old.job_file, (1000, 1000))
    write_run(40, name="first")
    assert read_run_names(intervals, qtbot) == ["first"]
    second = write_run(40, name="second")
    assert read_run_names(intervals, qtbot) == ["first", "second"]
    shutil.rmtree(second.path)
    assert read_run_names(intervals, qtbot) == ["first"]


def test_intervals_survive_unreadable_run(intervals: RunIntervals, qtbot: QtBot) -> None:
    damaged, empty = write_run(40, None, name="damaged"), supervise_here(write_run(20, None, name="empty"))
    assert read_run_names(intervals, qtbot) == ["damaged", "empty"]
    intact = damaged.job_file.read_text()
    replace(damaged.job_file, NESTED_TOO_DEEP)
    replace(empty.events_file, "")
    write_run(40, name="new")
    assert read_run_names(intervals, qtbot) == ["damaged", "new", "empty"]
    assert list(intervals.unread) == [damaged.run_id]
    assert intervals.unread[damaged.run_id].startswith(f"{damaged.job_file} is not valid TOML")
    replace(damaged.job_file, intact)
    read_run_names(intervals, qtbot)
    assert not intervals.unread


def test_interval_uses_given_name(intervals: RunIntervals, qtbot: QtBot) -> None:
    run = write_run(40, name="flowers")
    read_run_names(intervals, qtbot)
    change_notes(run.path, name="roses")
    assert read_run_names(intervals, qtbot) == ["roses"]


def test_intervals_of_every_execution(intervals: RunIntervals, qtbot: QtBot) -> None:
    now = time.time()
    run = create_run(job(name="flowers"))
    first = list(list_run_events(job(devices=(UUIDS[0],)), 40, "paused", begun=now - 90_000))
    first[-1].time = now - 80_000  # less than a day ago
    second = list(list_run_events(job(devices=("cpu",)), 40, None, begun=now - 6000, from_step=20, execution=2))
    third = list(list_run_events(job(devices=(UUIDS[1],)), 40, "stopped", begun=now - 3000, from_step=40, execution=3))
    second[-1].time = now - 7000  # the clock was set back
    write(run.events_file, [*first, *second, *third])
    read_run_names(intervals, qtbot)
    assert [(interval.devices, interval.state, interval.start) for interval in intervals.intervals] == [
        ((UUIDS[0],), "paused", now - 90_000),
        (("cpu",), "interrupted", now - 6000),
        ((UUIDS[1],), "stopped", now - 3000),
    ]
    assert [interval.end for interval in intervals.intervals] == [now - 80_000, now - 6000, third[-1].time]
    assert {(interval.run_id, interval.name) for interval in intervals.intervals} == {(run.run_id, "flowers")}


def test_interval_of_paused_run_holds_nothing(intervals: RunIntervals, qtbot: QtBot) -> None:
    run = write_run(20, "paused", name="flowers", devices=(UUIDS[0],))
    read_run_names(intervals, qtbot)
    assert (intervals.intervals[0].state, intervals.run_names_by_gpu()) == ("paused", {})
    supervise_here(run, execution=2)
    assert run.state() == "starting"  # its log doesn't contain the second execution
    with qtbot.waitSignal(intervals.parent().complete):
        intervals.parent().refresh()
    assert intervals.run_names_by_gpu() == {}
    append_events(
        run, *list_run_events(job(devices=(UUIDS[1],)), 40, None, begun=time.time(), from_step=20, execution=2)
    )
    read_run_names(intervals, qtbot)
    assert intervals.run_names_by_gpu() == {UUIDS[1]: "flowers"}
    assert [interval.state for interval in intervals.intervals] == ["paused", "running"]


def test_interval_of_queued_run_starts_with_devices(intervals: RunIntervals, qtbot: QtBot) -> None:
    now = time.time()
    started, *rest = list_run_events(job(devices=(UUIDS[0],)), 40, None, begun=now - 100)
    started.time = now - 5000
    run = create_run(job(name="flowers", devices=(UUIDS[0],)))
    supervise_here(run)
    starting = PhaseChanged(time=now - 5000, phase="starting")
    write(
        run.events_file, [started, starting, Waiting(time=now - 4999, position=2), Waiting(time=now - 4000, position=1)]
    )
    read_run_names(intervals, qtbot)
    (waiting,) = intervals.intervals
    assert (waiting.state, waiting.devices, intervals.run_names_by_gpu()) == ("waiting", (), {})
    assert waiting.start == now - 5000
    assert intervals.intervals[0].supervisor == os.getpid()
    line = LogLine(time=now - 3000, text="still waiting")
    append_events(run, line, PhaseChanged(time=now - 100, phase="starting"), *rest)
    read_run_names(intervals, qtbot)
    (running,) = intervals.intervals
    assert (running.state, running.start, intervals.run_names_by_gpu()) == ("running", now - 100, {UUIDS[0]: "flowers"})
