"""Runs that were interrupted stand above all others, each with what to do about it."""

from __future__ import annotations

from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from engine.contract.events import PhaseChanged, RunFinished
from engine.runs.folder import RunFolder, create_run
from engine.runs.notes import read_notes
from gui.runs.page import RunsPage
from tests.gui.runs.conftest import Refresh, column, interrupted, select
from tests.gui.sources.written_runs import a_run, job, write


def button(page: RunsPage, name: str) -> QAbstractButton:
    buttons = page.interrupted.findChildren(QAbstractButton)
    return next(each for each in buttons if each.accessibleName().startswith(name) and each.isVisible())


def test_that_an_interrupted_run_is_told_with_what_it_was_doing(page: RunsPage, refresh: Refresh) -> None:
    a_run(60)
    refresh()
    assert not page.interrupted.isVisible()
    interrupted(name="night shift")
    refresh()
    said = "\n".join(label.text() for label in page.interrupted.findChildren(QLabel) if label.isVisible())
    assert "night shift · ResNet-18: interrupted" in said
    assert "while training, epoch 4 of 4, step 60." in said


def test_that_being_told_of_runs_takes_the_keyboard_from_nobody(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    with qtbot.waitActive(page):
        page.activateWindow()
    interrupted(name="night shift")
    refresh()
    assert page.interrupted.isVisible()
    assert page.isActiveWindow()


def test_that_resume_has_the_run_go_on(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = interrupted(name="night shift")
    refresh()
    with qtbot.waitSignal(page.resume_wanted) as wanted:
        button(page, "Resume night shift").click()
    assert wanted.args[0].path == run.path


def test_that_to_fork_an_interrupted_run_is_not_to_see_to_it_but_to_go_on_is(page: RunsPage, refresh: Refresh) -> None:
    run = interrupted(60)
    create_run(job(resume_from=str(run.checkpoints / "last.pt")))
    refresh()
    assert page.interrupted.count == 1
    assert page.interrupted.isVisible()
    last = run.last_event()
    assert last is not None
    write(run.events_file, [PhaseChanged(time=last.time + 1, phase="pausing")], last.n + 1)
    write(run.events_file, [RunFinished(time=last.time + 2, outcome="paused", execution=2)], last.n + 2)
    refresh()
    assert not page.interrupted.isVisible()
    assert "Paused" in column(page, "State")


def test_that_a_run_that_is_left_as_it_is_stays_in_the_list_alone(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    run = interrupted()
    refresh()
    with qtbot.waitSignal(page.notes_writer.written):
        button(page, "Leave as it is").click()
    assert read_notes(run.path).set_aside
    assert not page.interrupted.isVisible()
    refresh()
    assert not page.interrupted.isVisible()
    assert column(page, "State") == ["Interrupted"]


def test_that_many_interrupted_runs_take_no_more_room_than_a_few(page: RunsPage, refresh: Refresh) -> None:
    for n in range(6):
        interrupted(8, name=f"run {n}")
    a_run(8, name="fine")
    refresh()
    assert page.interrupted.height() < 150
    more = next(b for b in page.interrupted.findChildren(QAbstractButton) if "4 more" in b.text() and b.isVisible())
    more.click()
    assert len(column(page, "Name")) == 6
    assert set(column(page, "State")) == {"Interrupted"}


def test_that_a_run_that_goes_on_is_neither_resumed_nor_deleted(page: RunsPage, refresh: Refresh) -> None:
    run = create_run(job())
    refresh()
    select(page, RunFolder(run.path))
    assert not page.acts.resume.isEnabled()
    assert not page.acts.change.isEnabled()
    assert not page.acts.delete.isEnabled()
