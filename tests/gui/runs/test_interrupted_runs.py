"""Runs that were interrupted stand above all others, each with what to do about it."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QAbstractButton, QLabel
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.run_notes import change_notes, read_notes
from engine.contract.runs import RunFolder, create_run, job_to_resume
from gui.runs.page import RunsPage
from tests.gui.run.written import a_run, job
from tests.gui.runs.conftest import Refresh, column, interrupted, select


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


def test_that_resume_asks_for_a_run_that_goes_on_from_the_last_checkpoint(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    run = interrupted(learning_rate=0.5, name="night shift")
    refresh()
    with qtbot.waitSignal(page.resume_wanted) as wanted:
        button(page, "Resume night shift").click()
    assert wanted.args[0] == job(learning_rate=0.5, name="night shift", resume_from=str(run.checkpoints / "last.pt"))


def test_that_a_run_without_a_checkpoint_starts_again(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    interrupted(checkpoint=False, seed=7)
    refresh()
    with qtbot.waitSignal(page.resume_wanted) as wanted:
        button(page, "Resume").click()
    assert wanted.args[0] == job(seed=7)


def test_that_a_run_that_was_renamed_is_resumed_under_its_name() -> None:
    run = interrupted(name="before")
    change_notes(run.path, name="after")
    resumed = job_to_resume(run)
    assert resumed is not None
    assert resumed.name == "after"
    run.job_file.write_text("no = [ job")
    assert job_to_resume(run) is None


def test_that_a_run_that_another_has_gone_on_from_is_seen_to(page: RunsPage, refresh: Refresh) -> None:
    run = interrupted()
    refresh()
    assert page.interrupted.isVisible()
    resumed = job_to_resume(run)
    assert isinstance(resumed, Job)
    create_run(resumed)
    refresh()
    assert not page.interrupted.isVisible()
    assert "Interrupted" in column(page, "State")


def test_that_a_run_that_is_left_as_it_is_stays_in_the_list_alone(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    run = interrupted()
    refresh()
    with qtbot.waitSignal(page.notebook.written):
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


@pytest.mark.parametrize(("outcome", "offered"), [("stopped", True), ("failed", True), ("completed", False)])
def test_that_what_did_not_come_to_its_end_can_be_resumed(
    page: RunsPage, refresh: Refresh, qtbot: QtBot, outcome: str, offered: bool
) -> None:
    run = a_run(8, outcome)  # type: ignore[arg-type]
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    refresh()
    select(page, run)
    assert page.acts.resume.isEnabled() == offered
    if offered:
        with qtbot.waitSignal(page.resume_wanted) as wanted:
            page.acts.resume.trigger()
        assert wanted.args[0].resume_from == str(run.checkpoints / "last.pt")
    else:
        assert "come to its end" in page.acts.resume.toolTip()


def test_that_a_run_that_goes_on_is_neither_resumed_nor_deleted(page: RunsPage, refresh: Refresh) -> None:
    run = create_run(job())
    refresh()
    select(page, RunFolder(run.path))
    assert not page.acts.resume.isEnabled()
    assert not page.acts.delete.isEnabled()
