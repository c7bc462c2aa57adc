"""Train page: switching between job and runs, tabs of runs, and the settings of a run."""

from __future__ import annotations

import shutil
import time

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.devices import CPU
from engine.contract.events import RunFinished
from engine.contract.job import FIELDS
from engine.runs.folder import RunFolder
from gui.main_window import MainWindow
from gui.pages import RUNS, TRAIN
from gui.sources.run_list import RunListing
from gui.sources.run_status import RunStatus
from gui.sources.settings import LAST_RUN, Settings
from gui.train.run_settings import RunSettingsView
from gui.train.tabs import RunTabs
from tests.gui.sources.written_runs import append_events, job, supervise_here, write_run
from tests.support.widgets import OpenWindow, ShowWidget, join_visible_texts


def read(*runs: RunFolder) -> RunListing:
    return RunListing(tuple(run.summary() for run in runs), (), {}, {}, {})


def texts(tabs: RunTabs) -> list[str]:
    return [tabs.tabText(index) for index in range(tabs.count())]


@pytest.fixture
def tabs(show_widget: ShowWidget) -> RunTabs:
    return show_widget(RunTabs(), 900, 40)


def test_tabs_show_working_and_opened_runs(tabs: RunTabs, qtbot: QtBot) -> None:
    ended, working = write_run(8, name="ended"), supervise_here(write_run(20, None, name="working"))
    newer = supervise_here(write_run(0, None, name="newer"))
    tabs.show_runs(read(newer, working, ended), None)
    assert texts(tabs) == ["New job", "▶ 75% · working", "▶ 0% · newer"]
    tabs.show_status(newer, RunStatus(label="Waiting", text="Waiting", fraction=0.5))
    assert "%" not in texts(tabs)[2]
    shutil.rmtree(newer.path)
    tabs.show_runs(read(working, ended), None)
    tabs.select_run(ended)
    assert texts(tabs)[2] == "… ended"
    tabs.show_runs(read(working, ended), None)
    assert texts(tabs)[2] == "✔ ended"
    assert tabs.tabButton(2, RunTabs.ButtonPosition.RightSide) is not None
    assert tabs.current_run.run is ended
    tabs.show_status(ended, RunStatus(label="Running", text="Running", fraction=0.32))
    assert texts(tabs)[2] == "▶ 32% · ended"
    assert tabs.tabButton(2, RunTabs.ButtonPosition.RightSide) is None
    assert tabs.accessibleTabName(2) == "ended, Running, 32%"
    tabs.show_runs(read(working, ended), ended)
    assert texts(tabs)[2] == "▶ 32% · ended", "the state of the followed run is newer than the list"
    tabs.show_status(ended, RunStatus(label="Completed", text="Completed", fraction=1.0))
    assert texts(tabs)[2] == "✔ ended"


def test_only_tabs_of_ended_runs_can_be_closed(tabs: RunTabs, qtbot: QtBot) -> None:
    ended, working = write_run(8, name="ended"), supervise_here(write_run(20, None, name="working"))
    tabs.select_run(ended)
    tabs.show_runs(read(working, ended), None)
    assert [tab.is_closable for tab in tabs.runs] == [True, False]
    tabs.close_run(working)
    assert tabs.count() == 3
    left, middle, right = (write_run(8, name=name) for name in ("left", "middle", "right"))
    for run in (left, middle, right):
        tabs.select_run(run)
    tabs.show_runs(read(right, middle, left, working, ended), None)
    tabs.select_run(middle)
    for run in (left, right):
        with qtbot.assertNotEmitted(tabs.job_chosen), qtbot.waitSignal(tabs.run_closed):
            tabs.close_run(run)
        assert tabs.current_run.run is middle
    for run in (middle, ended):
        tabs.select_run(run)
        with qtbot.waitSignals([tabs.run_closed, tabs.job_chosen]), qtbot.assertNotEmitted(tabs.run_chosen):
            tabs.close_run(run)
    assert [tab.title for tab in tabs.runs] == ["working"]


def test_close_button_keeps_height_of_tabs(tabs: RunTabs, styled: QApplication) -> None:
    height = tabs.sizeHint().height()
    ended = write_run(8, name="ended")
    tabs.select_run(ended)
    tabs.show_runs(read(ended), None)
    assert tabs.runs[0].is_closable
    assert tabs.sizeHint().height() == height


def test_tabs_of_deleted_and_unopened_ended_runs_go(tabs: RunTabs) -> None:
    opened, working = write_run(8, name="opened"), supervise_here(write_run(20, None, name="working"))
    tabs.select_run(opened)
    tabs.show_runs(read(working, opened), None)
    assert tabs.count() == 3
    append_events(working, RunFinished(outcome="completed", time=time.time()))
    tabs.show_runs(read(working, opened), None)
    assert [tab.title for tab in tabs.runs] == ["opened"]
    tabs.show_runs(read(working), opened)
    assert [tab.title for tab in tabs.runs] == ["opened"], "the run on screen stays"
    tabs.show_runs(read(opened), None)
    tabs.show_runs(read(), None)
    assert tabs.count() == 1


def press(window: MainWindow, key: Qt.Key, qtbot: QtBot, *, shift: bool = False) -> None:
    modifiers = Qt.KeyboardModifier.ControlModifier
    qtbot.keyClick(window, key, modifiers | Qt.KeyboardModifier.ShiftModifier if shift else modifiers)


def test_page_switches_between_job_and_runs_by_keyboard(open_window: OpenWindow, qtbot: QtBot) -> None:
    first, second = write_run(8, name="first"), write_run(12, name="second")
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    page, session = window.train, window.workspace.session
    assert not page.shows_run
    window.form.set_field("epochs", 7)
    for run in (first, second):
        window.show_run(run)
    assert page.shows_run
    assert window.workspace.run.isVisible()
    assert not window.form.isVisible()
    press(window, Qt.Key.Key_Tab, qtbot)
    assert window.form.isVisible()
    press(window, Qt.Key.Key_Tab, qtbot)
    assert session.run.path == first.path
    press(window, Qt.Key.Key_Backtab, qtbot, shift=True)
    window.form.focus_field("epochs")
    press(window, Qt.Key.Key_Backtab, qtbot, shift=True)
    assert window.focusWidget() is page.tabs
    assert session.run.path == second.path
    press(window, Qt.Key.Key_N, qtbot)
    press(window, Qt.Key.Key_Backtab, qtbot, shift=True)
    assert page.shows_run, "also the run that the window follows already"
    window.header.show_page(RUNS)
    press(window, Qt.Key.Key_N, qtbot)
    assert window.acts.page == TRAIN
    assert window.form.isVisible()
    assert window.form.field_value("epochs") == 7
    assert window.form.isAncestorOf(QApplication.focusWidget())


def test_closed_run_leaves_the_page(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    run = write_run(8, name="ended")
    window.show_run(run)
    window.workspace.followed.run = run  # as if it were on another machine
    qtbot.waitUntil(window.train.close_tab.isEnabled)
    window.train.close_tab.set_disabled_reason("A working run keeps its tab")
    window.workspace.session.changed.emit()
    assert window.train.close_tab.isEnabled()
    press(window, Qt.Key.Key_W, qtbot)
    assert window.train.tabs.count() == 1
    assert (window.workspace.session.run, window.workspace.followed.run) == (None, None)
    assert window.form.isVisible()
    assert not window.train.close_tab.isEnabled()
    assert window.status.status.text() != "Idle"  # it also shows if the job is ready


def test_status_bar_is_hidden_where_runs_show_their_state(open_window: OpenWindow) -> None:
    window = open_window()
    window.show_run(write_run(8))
    assert not window.status.isVisible()
    window.header.show_page(RUNS)
    assert window.status.isVisible()


def test_window_shows_the_run_of_last_time(open_window: OpenWindow, qtbot: QtBot) -> None:
    older, _newer = write_run(8, name="older"), write_run(8, name="newer")
    first = open_window()
    first.show_run(older)
    first.acts.run_settings.trigger()
    first.close()
    second = open_window()
    assert not second.train.run_settings.isHidden()
    qtbot.waitUntil(lambda: second.workspace.session.run is not None)
    assert second.workspace.session.run.path == older.path
    second.show_form()
    second.close()
    third = open_window()
    assert not third.train.welcome.isVisible()
    qtbot.waitUntil(lambda: third.workspace.runs.model.rowCount() == 2)
    assert third.form.isVisible()
    third.form.focus_field("epochs")
    focused = third.focusWidget()
    third.train.show_job()
    assert third.focusWidget() is focused
    third.close()
    working = supervise_here(write_run(20, None, name="working"))
    fourth = open_window()
    qtbot.waitUntil(lambda: fourth.train.shows_run)
    assert fourth.workspace.session.run.path == working.path
    assert "working run" in fourth.train.close_tab.disabled_reason


@pytest.mark.parametrize("state", ["readable", "deleted", "unreadable"])
@pytest.mark.usefixtures("styled")
def test_first_frame_waits_for_the_run_of_last_time(qtbot: QtBot, state: str) -> None:
    run = write_run(8)
    Settings().set(LAST_RUN, str(run.path))
    if state == "deleted":
        shutil.rmtree(run.path)
    window = MainWindow()
    qtbot.addWidget(window)
    texts_of_frame: list[str] = []
    window.completed.connect(lambda: texts_of_frame.append(join_visible_texts(window.train)))
    with qtbot.waitSignal(window.completed):
        window.show()
    assert "Opening the last run…" in texts_of_frame[0]
    assert "Dataset" not in texts_of_frame[0]
    if state == "unreadable":
        window.workspace.run_list.failed.emit("Permission denied")
        assert window.form.isVisible()
        assert "Starting…" not in window.status.status.text()
    else:
        qtbot.waitUntil(lambda: window.form.isVisible() if state == "deleted" else window.train.shows_run)
    window.close()


@pytest.mark.usefixtures("styled")
def test_window_closed_at_its_start_keeps_the_run_of_last_time(qtbot: QtBot) -> None:
    run = write_run(8)
    Settings().set(LAST_RUN, str(run.path))
    window = MainWindow()
    qtbot.addWidget(window)
    window.close()
    assert Settings().text(LAST_RUN) == str(run.path)


def test_settings_list_changed_fields_first(show_widget: ShowWidget, qtbot: QtBot) -> None:
    view = show_widget(RunSettingsView(), 320, 400)
    assert not view.use.isEnabled()
    view.show_job(job(epochs=7))
    of_run = job(epochs=9, augmentation="light", options={"swarm": 3.5})
    view.show_job(of_run)
    assert view.tree.topLevelItemCount() == 2
    changed, defaults = (view.tree.topLevelItem(number) for number in range(2))
    assert (changed.isExpanded(), defaults.isExpanded()) == (True, False)
    assert changed.isFirstColumnSpanned()
    rows = [[group.child(row) for row in range(group.childCount())] for group in (changed, defaults)]
    lines = [{row.text(0): (row.text(1), row.toolTip(0)) for row in of_group} for of_group in rows]
    helps = {field.label: field.help for field in FIELDS.values()}
    assert [group.text(0).split()[-1] for group in (changed, defaults)] == [f"({len(of_group)})" for of_group in lines]
    assert lines[0].pop("swarm") == ("3.5", "swarm: 3.5\n")  # an option that isn't known anymore
    assert lines[0]["Epochs"] == ("9", f"Epochs: 9\n{helps['Epochs']}")
    assert lines[0]["Augmentation"] == ("Light", f"Augmentation: Light\n{helps['Augmentation']}")
    assert all(tip.endswith(f"\n{helps[label]}") for of_group in lines for label, (_, tip) in of_group.items())
    assert lines[0].keys() | lines[1].keys() == helps.keys()
    assert not lines[0].keys() & lines[1].keys()
    view.resize(180, 400)
    assert view.tree.isColumnHidden(1)
    assert "Epochs\n\u20039" in [row.text(0) for row in rows[0]]
    with qtbot.waitSignal(view.requested) as requested:
        view.use.click()
    assert requested.args == [of_run]
    view.resize(320, 400)
    assert not view.tree.isColumnHidden(1)
    assert "Epochs" in [row.text(0) for row in rows[0]]
    view.show_job(None)
    assert (view.tree.isVisible(), view.use.isEnabled()) == (False, False)


def test_settings_of_a_run_fill_the_new_job(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    assert not window.acts.run_settings.isEnabled()
    window.show_run(write_run(8, epochs=9, devices=(CPU, CPU), strategy="ddp"))
    view = window.train.run_settings
    assert not view.isVisible()
    qtbot.keyClick(window, Qt.Key.Key_F8)
    qtbot.waitUntil(lambda: view.isVisible() and view.use.isEnabled())
    view.use.click()
    assert window.form.isVisible()
    assert window.form.field_value("epochs") == 9
    assert window.workspace.devices.selection() == (CPU, CPU)
    assert window.form.rows["dataset"].isAncestorOf(window.focusWidget())
    assert not window.acts.run_settings.isEnabled()
