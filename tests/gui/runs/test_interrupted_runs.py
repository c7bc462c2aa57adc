"""Banners that inform about interrupted runs."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QAbstractButton
from pytestqt.qtbot import QtBot

from engine.contract.events import PhaseChanged, RunFinished
from engine.runs.folder import create_run
from engine.runs.notes import read_notes
from gui.format import format_date_and_time
from gui.runs.page import RunsPage
from gui.sources.run_list import RunList
from tests.gui.runs.conftest import Refresh, make_interrupted_run, read_column
from tests.gui.sources.written_runs import job, write, write_run
from tests.support.widgets import join_visible_texts


def button(page: RunsPage, name: str) -> QAbstractButton:
    buttons = page.interrupted.findChildren(QAbstractButton)
    return next(each for each in buttons if each.accessibleName().startswith(name) and each.isVisible())


def test_interrupted_banner_leaves_window_active(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    with qtbot.waitActive(page):
        page.activateWindow()
    run = make_interrupted_run(1200, name="night shift")
    refresh()
    assert page.interrupted.isVisible()
    assert page.isActiveWindow()
    interrupted_at = format_date_and_time(run.summary().started + 120)
    assert f": interrupted {interrupted_at} while " in join_visible_texts(page.interrupted)


@pytest.mark.parametrize(("checkpoint", "command"), [(True, "Resume"), (False, "Train again")])
def test_interrupted_banner_resumes_or_trains_again(
    page: RunsPage, refresh: Refresh, qtbot: QtBot, checkpoint: bool, command: str
) -> None:
    run = make_interrupted_run(name="night shift", checkpoint=checkpoint)
    refresh()
    with qtbot.waitSignal(page.resume_requested) as requested:
        button(page, f"{command} night shift").click()
    assert requested.args[0].path == run.path


@pytest.mark.parametrize(
    ("count", "is_visible", "text"),
    [
        (0, False, ""),
        (1, False, "1 run was interrupted. "),
        (2, False, "2 runs were interrupted. "),
        (1, True, ""),
    ],
)
@pytest.mark.usefixtures("styled")
def test_hidden_page_reports_interrupted_runs_once(qtbot: QtBot, count: int, is_visible: bool, text: str) -> None:
    for _ in range(count):
        make_interrupted_run()
    page, messages = RunsPage(RunList()), [""]
    qtbot.addWidget(page, before_close_func=RunsPage.close_work)
    page.message.connect(messages.append)
    page.setVisible(is_visible)
    for _ in range(2):
        with qtbot.waitSignal(page.run_list.complete):
            page.run_list.refresh()
    assert messages[-1].startswith(text)
    assert len(messages) == 1 + bool(text)


def test_interrupted_banner_survives_fork_but_not_resume(page: RunsPage, refresh: Refresh) -> None:
    run = make_interrupted_run(60)
    create_run(job(resume_from=str(run.checkpoints / "last.pt")))
    refresh()
    assert page.interrupted.count == 1
    assert page.interrupted.isVisible()
    last = run.last_event()
    write(run.events_file, [PhaseChanged(time=last.time + 1, phase="pausing")], last.n + 1)
    write(run.events_file, [RunFinished(time=last.time + 2, outcome="paused", execution=2)], last.n + 2)
    refresh()
    assert not page.interrupted.isVisible()
    assert "Paused" in read_column(page, "State")


def test_interrupted_banner_is_dismissed_for_good(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = make_interrupted_run()
    refresh()
    with qtbot.waitSignal(page.notes_writer.written):
        button(page, "Dismiss").click()
    assert read_notes(run.path).set_aside
    assert not page.interrupted.isVisible()
    refresh()
    assert not page.interrupted.isVisible()
    assert read_column(page, "State") == ["Interrupted"]


def test_interrupted_banners_link_to_all_runs(page: RunsPage, refresh: Refresh) -> None:
    for n in range(6):
        make_interrupted_run(8, name=f"run {n}")
    write_run(8, name="fine")
    refresh()
    more = next(b for b in page.interrupted.findChildren(QAbstractButton) if "4 more" in b.text() and b.isVisible())
    more.click()
    assert len(read_column(page, "Name")) == 6
    assert set(read_column(page, "State")) == {"Interrupted"}
