"""Banner that asks for confirmation before runs are deleted."""

from __future__ import annotations

import os
import re
import shutil
import threading
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from engine.runs.folder import create_run
from gui.runs.page import RunsPage
from gui.sources.background import Background
from gui.sources.trash import Trashed
from gui.widgets.trash_bar import TrashBar
from tests.gui.runs.conftest import Refresh, make_interrupted_run, read_column, select_runs
from tests.gui.sources.written_runs import job, write_run
from tests.support.widgets import ShowWidget


def request_deletion(page: RunsPage, qtbot: QtBot) -> str:
    """Press Delete in the table, and return the text of the banner."""
    page.table.setFocus()
    qtbot.keyClick(page.table, Qt.Key.Key_Delete)
    qtbot.waitUntil(lambda: page.deleting.yes.isVisible() and page.deleting.yes.text() == "Move to trash")
    return page.deleting.text()


def confirm_deletion(page: RunsPage, qtbot: QtBot) -> None:
    """Press the confirming button, which is on the left, and wait until the list has been updated."""
    with qtbot.waitSignals([page.deleting.changed, page.run_list.complete]):
        page.deleting.yes.click()


def test_deleting_bar_shows_the_size_and_moves_runs(
    page: RunsPage, refresh: Refresh, qtbot: QtBot, tmp_path: Path
) -> None:
    runs = [write_run(8, name=f"run {n}") for n in range(3)]
    for run in runs[:2]:
        (run.checkpoints / "last.pt").write_bytes(os.urandom(3 << 20))
    os.link(runs[0].checkpoints / "last.pt", tmp_path / "kept.pt")
    (runs[0].path / "more").write_bytes(os.urandom(2 << 20))
    refresh()
    select_runs(page, *runs[:2])
    question = request_deletion(page, qtbot)
    assert "2 runs" in question
    assert re.findall(r"([\d.]+) MiB", question) == ["8.0", "6.0", "5.0"]  # all, in checkpoints, not used elsewhere
    assert page.deleting.no.hasFocus()
    assert all(run.path.is_dir() for run in runs)
    confirm_deletion(page, qtbot)
    assert read_column(page, "Name") == ["run 2"]
    assert not any(run.path.exists() for run in runs[:2])
    assert "2 runs" in page.deleting.text()


def test_deleting_bar_undoes(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(8, name="one")
    write_run(8, name="two")
    before = run.events_file.read_bytes()
    refresh()
    select_runs(page, run)
    request_deletion(page, qtbot)
    confirm_deletion(page, qtbot)
    assert read_column(page, "Name") == ["two"]
    assert page.deleting.yes.text() == "Undo"
    page.deleting.no.click()
    assert page.acts.undo.ready, "also after the bar has been closed"
    with qtbot.waitSignals([page.deleting.changed, page.run_list.complete]):
        qtbot.keyClick(page.table, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert sorted(read_column(page, "Name")) == ["one", "two"]
    assert run.events_file.read_bytes() == before
    assert not page.acts.undo.ready


def test_deleting_bar_cancels(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(8)
    refresh()
    select_runs(page, run)
    request_deletion(page, qtbot)
    qtbot.keyClick(page.deleting.no, Qt.Key.Key_Escape)
    assert not page.deleting.isVisible()
    assert page.table.hasFocus()
    request_deletion(page, qtbot)
    page.deleting.no.click()
    assert not page.deleting.isVisible()
    page.deleting.ask(page.selected())
    page.deleting.no.click()  # before the size is known
    qtbot.waitUntil(lambda: not page.deleting.findChildren(Background))
    assert not page.deleting.isVisible()
    page.deleting.accept()
    assert not page.deleting.is_busy
    assert run.events_file.is_file()


def test_deleting_bar_excludes_active_runs(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    active, ended = create_run(job(name="active")), write_run(8, name="ended")
    refresh()
    select_runs(page, active, ended)
    question = request_deletion(page, qtbot)
    assert "“ended”" in question
    assert "1 active run stays. It takes " in question
    assert "checkpoints" not in question
    confirm_deletion(page, qtbot)
    assert read_column(page, "Name") == ["active"]
    summaries = [run for run in page.model.runs if run.name == "active"]
    for selected, reason in (
        (summaries, "it is still running. Stop it first."),
        (2 * summaries, "they are still running. Stop them first."),
    ):
        page.deleting.ask(selected)
        assert page.deleting.text().endswith(reason)
        assert not page.deleting.yes.isVisible()


def test_deleting_bar_reports_missing_run(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    runs = [write_run(8) for _ in range(3)]
    refresh()
    select_runs(page, *runs)
    request_deletion(page, qtbot)
    for run in runs[:2]:
        shutil.rmtree(run.path)
    confirm_deletion(page, qtbot)
    assert page.deleting.text().count("no longer exists") == 2
    assert "1 of 3 runs" in page.deleting.text()
    assert "Warning" in [label.accessibleName() for label in page.deleting.findChildren(QLabel)]
    with qtbot.waitSignals([page.deleting.changed, page.run_list.complete]):
        page.deleting.yes.click()
    assert (page.deleting.can_undo, page.deleting.yes.isVisible()) == (False, False)


def test_deleting_bar_deletes_from_interrupted_banner(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = make_interrupted_run(name="night shift")
    refresh()
    page.interrupted.delete.emit(run.run_id)
    qtbot.waitUntil(lambda: page.deleting.yes.text() == "Move to trash")
    assert "“night shift”" in page.deleting.text()
    confirm_deletion(page, qtbot)
    assert not page.interrupted.isVisible()
    assert not run.path.exists()


def test_trash_bar_is_free_again_after_a_failure(show_widget: ShowWidget, qtbot: QtBot) -> None:
    bar, gate, called = show_widget(TrashBar("Deleting")), threading.Event(), list[int]()

    def fail(number: int) -> Trashed:
        called.append(number)
        gate.wait(20)
        raise PermissionError(13, "Permission denied")

    bar.start("1 run", fail, [1])
    bar.start("2 runs", fail, [2, 3])  # is ignored
    assert bar.text() == "Moving 1 run to the trash…"
    with qtbot.captureExceptions() as raised:
        gate.set()
        qtbot.waitUntil(lambda: bar.text() == "Couldn't finish: Permission denied")
    assert (called, [kind for kind, *_ in raised], bar.is_busy) == ([1], [PermissionError], False)
