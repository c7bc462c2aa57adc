"""The one look at the runs folder: what it tells, and that it goes on whatever happens."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from engine.runs.index import RunIndex
from engine.system import paths
from gui.main_window import MainWindow
from gui.sources.run_list import RunList, RunsRead
from tests.gui.sources.test_run_intervals import going_on
from tests.gui.sources.written_runs import a_run


@pytest.fixture
def runs(qtbot: QtBot) -> Iterator[RunList]:
    made = RunList()
    yield made
    made.close()


def read(runs: RunList, qtbot: QtBot) -> RunsRead:
    with qtbot.waitSignal(runs.complete) as told:
        runs.refresh()
    return told.args[0]


def test_that_all_runs_are_told_and_then_those_that_have_changed(runs: RunList, qtbot: QtBot) -> None:
    first = a_run(8, name="first")
    found: list[str] = []
    runs.found.connect(lambda some: found.extend(run.run_id for run in some))
    assert [run.run_id for run in read(runs, qtbot).runs] == [first.run_id] == found
    second = going_on(name="second")
    told = read(runs, qtbot)
    assert {run.run_id for run in told.runs} == {first.run_id, second.run_id}
    assert found == [first.run_id, second.run_id]
    assert told.count() == (1, 0)
    shown = told.to_show()
    assert shown is not None
    assert shown.run_id == second.run_id


def test_that_it_looks_by_itself_once_started(runs: RunList, qtbot: QtBot) -> None:
    runs._timer.setInterval(50)
    runs.start()
    with qtbot.waitSignal(runs.found, check_params_cb=bool):
        a_run(8)
    runs.close()
    assert not runs._timer.isActive()


def test_that_being_told_twice_reads_twice(runs: RunList, qtbot: QtBot) -> None:
    a_run(8)
    with qtbot.waitSignals([runs.complete, runs.complete]):
        runs.refresh()
        runs.refresh()


def test_that_nothing_is_told_after_its_end(runs: RunList, qtbot: QtBot) -> None:
    a_run(8)
    runs.refresh()
    reading = runs._reading
    assert reading is not None
    reading._thread.join()  # it has read all of them, and nobody has heard of it yet
    with qtbot.assertNotEmitted(runs.complete):
        runs.close()
    assert runs._reading is None


@pytest.mark.parametrize("gone", [False, True])
def test_that_a_folder_that_cannot_be_read_says_why_and_is_looked_at_on(
    runs: RunList, qtbot: QtBot, gone: bool
) -> None:
    run = a_run(8)
    runs._timer.setInterval(50)
    runs.start()
    qtbot.waitSignal(runs.complete).wait()
    folder = paths.runs_folder()
    aside = folder.with_name("aside")
    folder.rename(aside)
    if not gone:
        folder.write_text("not a folder")
    why = f"{'No such file or directory' if gone else 'Not a directory'} ({folder})"
    with qtbot.waitSignal(runs.failed, check_params_cb=lambda told: told == why):
        pass
    folder.unlink(missing_ok=True)
    aside.rename(folder)
    with qtbot.waitSignal(runs.complete) as back:
        pass
    assert [one.run_id for one in back.args[0].runs] == [run.run_id]


def test_that_an_unexpected_fault_is_told_of_and_ends_nothing(
    runs: RunList, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(8)
    whole = RunIndex.summaries
    faults = [RuntimeError("a bug")]

    def once(self: RunIndex, *arguments: object) -> object:
        if faults:
            raise faults.pop()
        return whole(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RunIndex, "summaries", once)
    runs._timer.setInterval(50)
    with (
        qtbot.captureExceptions() as seen,
        qtbot.waitSignals([runs.failed, runs.complete], order="strict"),
    ):
        runs.start()
    assert [str(fault) for _kind, fault, _trace in seen] == ["a bug"]


def test_that_the_runs_page_and_the_status_line_say_why_and_keep_the_last_list(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    a_run(8, name="flowers")
    window = open_window()
    assert window.workspace is not None
    page = window.workspace.runs
    window.workspace.run_list._timer.setInterval(50)
    qtbot.waitUntil(lambda: page.model.rowCount() == 1)
    window.header.show_page(2)
    folder = paths.runs_folder()
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("not a folder")
    why = f"he list of runs can't be read: Not a directory ({folder})"
    qtbot.waitUntil(lambda: why in window.status.status.text())
    assert why in page.unread.text()
    assert page.unread.isVisible()
    assert page.table.isVisible()
    assert page.model.rowCount() == 1
    folder.unlink()
    shutil.move(aside, folder)
    qtbot.waitUntil(lambda: why not in window.status.status.text())
    assert not page.unread.isVisible()
