"""Deleting runs asks first, says what they hold, and can be taken back."""

from __future__ import annotations

import os
import shutil

from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from engine.runs.folder import create_run
from gui.runs.page import RunsPage
from tests.gui.runs.conftest import Refresh, column, interrupted, select
from tests.gui.sources.written_runs import a_run, job


def asked(page: RunsPage, qtbot: QtBot) -> str:
    """Presses Delete in the table; what is asked then."""
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: page.deleting.yes.isVisible() and page.deleting.yes.text() == "Move to trash")
    return page.deleting.text()


def test_that_deleting_asks_with_the_size_and_moves_several_runs_at_once(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    runs = [a_run(8, name=f"run {n}") for n in range(3)]
    for run in runs[:2]:
        (run.checkpoints / "last.pt").write_bytes(os.urandom(3 << 20))
    refresh()
    select(page, *runs[:2])
    said = asked(page, qtbot)
    assert said.startswith("Move 2 runs to the trash? Together they take 6.0 MiB, including 6.0 MiB of checkpoints")
    assert "emptying the trash frees" in said
    assert page.deleting.no.hasFocus()
    assert all(run.path.is_dir() for run in runs)
    with qtbot.waitSignals([page.deleting.changed, page._summaries.complete]):
        page.deleting.yes.click()
    assert column(page, "Name") == ["run 2"]
    assert not any(run.path.exists() for run in runs[:2])
    assert page.deleting.text().startswith("Deleted 2 runs, now in the desktop's trash")


def test_that_deleted_runs_are_put_back(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = a_run(8, name="one")
    a_run(8, name="two")
    before = run.events_file.read_bytes()
    refresh()
    select(page, run)
    asked(page, qtbot)
    with qtbot.waitSignals([page.deleting.changed, page._summaries.complete]):
        page.deleting.yes.click()
    assert column(page, "Name") == ["two"]
    assert page.deleting.yes.text() == "Undo"
    page.deleting.no.click()
    assert page.acts.undo.ready, "also after the bar has been closed"
    with qtbot.waitSignals([page.deleting.changed, page._summaries.complete]):
        qtbot.keyClick(page.table, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert sorted(column(page, "Name")) == ["one", "two"]
    assert run.events_file.read_bytes() == before
    assert "1 run put back" in page.deleting.text()
    assert not page.acts.undo.ready


def test_that_escape_and_cancel_leave_everything_as_it_was(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = a_run(8)
    refresh()
    select(page, run)
    asked(page, qtbot)
    qtbot.keyClick(page.deleting.no, Qt.Key.Key_Escape)
    assert not page.deleting.isVisible()
    assert page.table.hasFocus()
    asked(page, qtbot)
    page.deleting.no.click()
    assert not page.deleting.isVisible()
    assert run.events_file.is_file()


def test_that_runs_that_go_on_are_left_out_and_that_is_said(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    going, ended = create_run(job(name="going")), a_run(8, name="ended")
    refresh()
    select(page, going, ended)
    said = asked(page, qtbot)
    assert "“ended”" in said
    assert "1 run is still running and will not be moved" in said
    with qtbot.waitSignals([page.deleting.changed, page._summaries.complete]):
        page.deleting.yes.click()
    assert column(page, "Name") == ["going"]
    page.deleting.ask([run for run in page.model.runs if run.name == "going"])
    assert "can't be deleted: it is still running" in page.deleting.text()
    assert not page.deleting.yes.isVisible()


def test_that_a_run_that_went_meanwhile_is_said_to_be_gone(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = a_run(8)
    refresh()
    select(page, run)
    asked(page, qtbot)
    shutil.rmtree(run.path)
    with qtbot.waitSignals([page.deleting.changed, page._summaries.complete]):
        page.deleting.yes.click()
    assert "no longer exists" in page.deleting.text()
    assert not page.deleting.yes.isVisible()


def test_that_an_interrupted_run_is_deleted_from_its_line(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = interrupted(name="night shift")
    refresh()
    page.interrupted.delete.emit(run.run_id)
    qtbot.waitUntil(lambda: page.deleting.yes.text() == "Move to trash")
    assert "“night shift”" in page.deleting.text()
    with qtbot.waitSignals([page.deleting.changed, page._summaries.complete]):
        page.deleting.yes.click()
    assert not page.interrupted.isVisible()
    assert not run.path.exists()
