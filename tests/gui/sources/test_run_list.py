"""Run list, which polls the folder that contains the runs."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from PySide6.QtCore import QObject, QTimer
from pytestqt.qtbot import QtBot

from engine.contract.events import RunFinished, Waiting
from engine.runs.folder import create_run
from engine.runs.index import RunIndex
from engine.runs.slurm_job import SlurmJob, write_slurm
from engine.system import paths
from gui.sources.background import Background
from gui.sources.run_list import RunList, RunListing, SlurmWatch
from tests.gui.sources.written_runs import append_events, job, supervise_here, write_run
from tests.support.widgets import OpenWindow


@pytest.fixture
def runs(qtbot: QtBot) -> Iterator[RunList]:
    created = RunList()
    yield created
    created.close()


def read(runs: RunList, qtbot: QtBot) -> RunListing:
    with qtbot.waitSignal(runs.complete) as complete:
        runs.refresh()
    return complete.args[0]


def test_run_list_reports_all_runs_then_changed_runs(runs: RunList, qtbot: QtBot) -> None:
    first = write_run(8, name="first")
    found: list[str] = []
    runs.found.connect(lambda some: found.extend(run.run_id for run in some))
    assert [run.run_id for run in read(runs, qtbot).runs] == [first.run_id] == found
    second = supervise_here(write_run(20, None, name="second"))
    again = read(runs, qtbot)
    assert {run.run_id for run in again.runs} == {first.run_id, second.run_id}
    assert found == [first.run_id, second.run_id]
    assert again.count() == (1, 0)
    assert again.run_to_open(str(first.path)).run_id == second.run_id
    waiting = supervise_here(write_run(8, None))
    append_events(waiting, Waiting(time=time.time(), position=1))
    newest_first = read(runs, qtbot)
    assert newest_first.count() == (1, 1)
    active = [run.run_id for run in newest_first.runs if run.run_id != first.run_id]
    assert newest_first.run_to_open("").run_id == active[0]
    for run in (second, waiting):
        append_events(run, RunFinished(time=time.time(), outcome="stopped"))
    shutil.rmtree(second.path)
    ended = read(runs, qtbot)
    assert ended.count() == (0, 0)
    assert ended.run_to_open(str(first.path)).run_id == first.run_id
    assert ended.run_to_open(str(second.path)) is None
    assert runs.known_ids == {first.run_id, waiting.run_id}
    runs.close()
    assert read(runs, qtbot).runs == ended.runs


def test_run_list_polls_once_started(runs: RunList, qtbot: QtBot) -> None:
    runs.set_interval(0.05)
    runs.start()
    with qtbot.waitSignal(runs.found, check_params_cb=bool):
        write_run(8)
    (timer,) = runs.findChildren(QTimer)
    runs.close()
    assert not timer.isActive()


def test_two_refreshes_read_twice(runs: RunList, qtbot: QtBot) -> None:
    write_run(8)
    with qtbot.waitSignals([runs.complete, runs.complete]):
        runs.refresh()
        runs.refresh()


def test_slurm_watch_polls_active_slurm_runs(runs: RunList, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    queued, ended = create_run(job()), write_run(8)
    for run, state in ((queued, "PENDING"), (ended, "COMPLETED")):
        write_slurm(run.path, SlurmJob(job_id=7, state=state))
    create_run(job())
    refresh = Mock(side_effect=(False, True, True))
    monkeypatch.setattr("gui.sources.run_list.refresh_slurm_states", refresh)
    parent = QObject()
    watch, listing, changes = SlurmWatch(parent), read(runs, qtbot), list[int]()
    watch.changed.connect(lambda: changes.append(refresh.call_count))
    for period_s in (0.0, 3600.0):
        monkeypatch.setattr("gui.sources.run_list.POLL_S", period_s)
        watch.poll(listing)
        qtbot.waitUntil(lambda: not parent.findChildren(Background))
    assert [[run.path for run in call.args[0]] for call in refresh.mock_calls] == [[queued.path]] * 2
    assert changes == [2]
    watch.poll(listing)  # too early
    assert not parent.findChildren(Background)
    watch.close()
    assert refresh.call_count == 2


@pytest.mark.parametrize("end", ["close", "change_folder"])
def test_dead_disk_holds_up_neither_closing_nor_a_new_folder(
    runs: RunList, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    run = write_run(8)
    summaries, answer = RunIndex.summaries, threading.Event()
    calls: list[int] = []

    def slow_once(self: RunIndex, *arguments: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            answer.wait()
        return summaries(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RunIndex, "summaries", slow_once)
    monkeypatch.setattr("gui.sources.run_list.CLOSE_S", 0.01)
    complete: list[RunListing] = []
    runs.complete.connect(complete.append)
    runs.refresh()
    qtbot.waitUntil(lambda: len(calls) == 1)
    if end == "close":
        runs.close()
        assert not runs.reading
    else:
        runs.change_folder()
        qtbot.waitUntil(lambda: len(complete) == 1)
    answer.set()
    qtbot.waitUntil(lambda: not any(thread.name == "background" for thread in threading.enumerate()))
    qtbot.wait(10)
    assert [one.run_id for read in complete for one in read.runs] == ([] if end == "close" else [run.run_id])


@pytest.mark.parametrize("deleted", [False, True])
def test_unreadable_folder_is_reported_and_read_later(runs: RunList, qtbot: QtBot, deleted: bool) -> None:
    run = write_run(8)
    runs.set_interval(0.05)
    runs.start()
    qtbot.waitSignal(runs.complete).wait()
    folder = paths.runs_folder()
    moved = folder.with_name("aside")
    folder.rename(moved)
    if not deleted:
        folder.write_text("not a folder")
    why = f"{'No such file or directory' if deleted else 'Not a directory'} ({folder})"
    with qtbot.waitSignal(runs.failed, check_params_cb=lambda received: received == why):
        pass
    folder.unlink(missing_ok=True)
    moved.rename(folder)
    with qtbot.waitSignal(runs.complete) as back:
        pass
    assert [one.run_id for one in back.args[0].runs] == [run.run_id]


def test_unexpected_error_is_logged_and_polling_continues(
    runs: RunList, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(8)
    summaries = RunIndex.summaries
    errors = [RuntimeError("a bug")]

    def fail_once(self: RunIndex, *arguments: object) -> object:
        if errors:
            raise errors.pop()
        return summaries(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RunIndex, "summaries", fail_once)
    runs.set_interval(0.05)
    with (
        qtbot.captureExceptions() as logged,
        qtbot.waitSignals([runs.failed, runs.complete], order="strict"),
    ):
        runs.start()
    assert [str(error) for _kind, error, _trace in logged] == ["a bug"]


def test_window_shows_error_and_keeps_last_list(open_window: OpenWindow, qtbot: QtBot) -> None:
    write_run(8, name="flowers")
    window = open_window()
    page = window.workspace.runs
    window.workspace.run_list.set_interval(0.05)
    qtbot.waitUntil(lambda: page.model.rowCount() == 1)
    window.header.show_page(2)
    folder = paths.runs_folder()
    moved = folder.with_name("aside")
    folder.rename(moved)
    folder.write_text("not a folder")
    why = f"he list of runs can't be read: Not a directory ({folder})"
    qtbot.waitUntil(lambda: why in window.status.status.text())
    assert why in page.unread.text()
    assert page.unread.isVisible()
    assert page.table.isVisible()
    assert page.model.rowCount() == 1
    folder.unlink()
    shutil.move(moved, folder)
    # Another message may replace the one in the status bar before.
    qtbot.waitUntil(lambda: why not in window.status.status.text() and not page.unread.isVisible())
