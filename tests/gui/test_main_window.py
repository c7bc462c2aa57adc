"""Main window: space for the devices panel, and files that are dropped."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtGui import QDragLeaveEvent
from PySide6.QtWidgets import QApplication, QCheckBox, QDialog, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.dataset import InspectionProgress
from engine.contract.devices import CPU
from engine.contract.events import Waiting
from gui.form.followers import create_sample_job
from gui.main_window import MainWindow
from gui.pages import MONITOR, RUNS, SEARCHES, TRAIN
from gui.run.model.view import ModelView
from gui.style import theme
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.gui.sources.written_runs import append_events, supervise_here, write_run
from tests.support.drops import drag_files, drop_files
from tests.support.widgets import OpenWindow, join_visible_texts


class PaintedOverlaps(QObject):
    """Event filter that records whether two widgets overlap when the first of them is painted."""

    def __init__(self, first: QWidget, second: QWidget) -> None:
        super().__init__(first)
        self._widgets = first, second
        self.found: list[bool] = []
        first.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: N802
        if event.type() == QEvent.Type.Paint:
            first, second = self._widgets
            self.found.append(first.geometry().intersects(second.geometry()))
        return False


@pytest.mark.usefixtures("styled")
def test_first_frame_has_its_final_layout(qtbot: QtBot) -> None:
    window = MainWindow()
    qtbot.addWidget(window)
    section = window.form.sections[0]
    overlaps = PaintedOverlaps(section.summary, section.button)
    actions = window.acts.needing_pages
    assert {action.disabled_reason for action in actions} == {"Footplate is still starting"}
    with qtbot.waitSignal(window.completed):
        window.show()
    assert window.acts.hosts in actions
    assert window.acts.hosts.ready
    assert window.size() == QSize(1280, min(800, window.screen().availableSize().height() - 80))
    qtbot.waitUntil(lambda: window.splitter.sizes() == [290, 985])
    qtbot.waitUntil(lambda: bool(overlaps.found))
    assert not any(overlaps.found)
    window.close()


@pytest.mark.usefixtures("normal_text")
def test_devices_panel_folds_while_text_is_large(open_window: OpenWindow) -> None:
    window = open_window()
    window.resize(1280, 800)
    panel = window.acts.devices_panel
    assert panel.isChecked()
    theme.choose("system", 200)
    assert not panel.isChecked()
    panel.setChecked(True)
    assert window.dock.panel.isVisible()
    window.header.show_page(RUNS)
    window.header.show_page(TRAIN)
    assert not panel.isChecked()
    theme.choose("system", 100)
    assert panel.isChecked()
    for width in (900, 899):
        window.resize(width, 800)
        assert panel.isChecked() == (width == 900)
    window.resize(1000, 800)
    for sizes in ([0, 1000], [1000, 0]):
        window.splitter.setSizes(sizes)
        assert min(window.splitter.sizes()) >= 200
    window.splitter.setSizes([300, 700])
    width = window.dock.panel.width()
    window.resize(1200, 800)
    assert window.dock.panel.width() == width


def test_devices_panel_is_chosen_for_each_page(open_window: OpenWindow) -> None:
    window = open_window()
    window.resize(1600, 900)
    panel, states = window.acts.devices_panel, []
    for number, change in (
        (TRAIN, True),
        (MONITOR, False),
        (TRAIN, False),
        (MONITOR, True),
        (TRAIN, False),
        (MONITOR, False),
    ):
        window.header.show_page(number)
        states.append(panel.isChecked())
        assert window.dock.panel.isVisible() == panel.isChecked()
        if change:
            panel.toggle()
    train, monitor = states[:2]
    assert states[2:] == [not train, monitor, not train, not monitor]
    window.header.show_page(TRAIN)
    panel.setChecked(True)
    window.workspace.devices.findChild(QCheckBox).setFocus()
    assert window.dock.panel.isAncestorOf(window.focusWidget())
    panel.toggle()
    assert window.focusWidget() is window.header.tabs


def test_drag_over_window_shows_drop_target(open_window: OpenWindow, tmp_path: Path) -> None:
    window = open_window()
    for end in (lambda: QApplication.sendEvent(window, QDragLeaveEvent()), lambda: drop_files(window, tmp_path)):
        assert not window.drop_target.isVisible()
        drag_files(window, tmp_path)
        assert window.drop_target.isVisible()
        end()
    assert not window.drop_target.isVisible()


def test_files_can_be_dropped_on_every_part_of_the_form(open_window: OpenWindow, tmp_path: Path) -> None:
    """Check that no text field takes the text of dragged files, as file managers add it to the data."""
    window = open_window()
    for part in filter(QWidget.isVisible, window.job_panel.findChildren(QWidget)):
        drag_files(part, tmp_path)
        assert window.drop_target.isVisible(), part
        QApplication.sendEvent(window, QDragLeaveEvent())


def list_panes(window: MainWindow, qtbot: QtBot, key: Qt.KeyboardModifier) -> list[QWidget]:
    """Press F6 with a modifier until the focus returns to a widget, and return the widgets that had the focus."""
    visited: list[QWidget] = []
    while window.focusWidget() not in visited:
        visited.append(window.focusWidget())
        qtbot.keyClick(window, Qt.Key.Key_F6, key)
    assert window.focusWidget() is visited[0]
    return visited


def test_f6_moves_between_panes_of_every_page(open_window: OpenWindow, qtbot: QtBot) -> None:
    write_run(8)
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    window.show_form()
    plain, shift = Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ShiftModifier
    work, header = window.workspace, window.header
    qtbot.waitUntil(lambda: work.runs.table.model().rowCount() == 1)
    window.acts.devices_panel.setChecked(True)
    window.form.focus_field("epochs")
    epochs = window.focusWidget()
    panel = window.job_panel
    by_page: dict[int, list[QWidget]] = {
        TRAIN: [header, window.dock.panel, panel, panel.submit_bar],
        MONITOR: [header, work.monitor.bar],
        RUNS: [header, work.runs.table, work.runs.details],
        SEARCHES: [header, work.get_page("search"), work.get_page("search").stack],
    }
    for number, panes in by_page.items():
        header.show_page(number)
        if number == TRAIN:
            epochs.setFocus()
        else:
            header.tabs.setFocus()
        visited = list_panes(window, qtbot, plain)
        for pane in panes:
            assert any(pane is each or pane.isAncestorOf(each) for each in visited), (number, pane)
        assert len(visited) >= len(panes)
        assert list_panes(window, qtbot, shift) == [visited[0], *visited[:0:-1]]
        assert all(each.isVisible() and each.focusPolicy() & Qt.FocusPolicy.TabFocus for each in visited)


def test_f6_returns_to_the_last_widget_of_a_pane(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(window.isActiveWindow)
    window.show_form()
    window.form.focus_field("epochs")
    epochs = window.focusWidget()
    qtbot.keyClick(window, Qt.Key.Key_F6)
    assert window.job_panel.submit_bar.isAncestorOf(window.focusWidget())
    qtbot.keyClick(window, Qt.Key.Key_F6, Qt.KeyboardModifier.ShiftModifier)
    assert window.focusWidget() is epochs


def test_window_restores_its_state(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    assert window.focusWidget() is window.train.welcome.sample
    window.resize(1280, 800)
    window.acts.devices_panel.setChecked(True)
    job = create_sample_job().with_fields(strategy="ddp", devices=(CPU, CPU))
    window.train.settings_requested.emit(job)
    assert window.workspace.devices.selection() == (CPU, CPU)
    qtbot.waitUntil(lambda: window.form.job is not None and window.form.job.parallel.devices == (CPU, CPU))
    for action in (window.acts.preferences, window.acts.shortcuts, window.acts.about):
        action.trigger()
    window.splitter.setSizes([320, 960])
    sizes = window.splitter.sizes()
    window.close()
    assert not any(dialog.isVisible() for dialog in window.findChildren(QDialog))
    for text, severity in (("first", "warning"), ("saved", "info"), ("second", "warning")):
        window.show_message(text, severity)
    restored = open_window()
    assert restored.workspace.devices.selection() == (CPU, CPU)
    assert restored.message.text() == "first second"
    restored.resize(1280, 800)
    restored.acts.devices_panel.setChecked(True)
    qtbot.waitUntil(lambda: restored.splitter.sizes() == sizes)
    workspace = restored.workspace
    restored.add_pages()
    assert restored.workspace is workspace
    restored.acts.full_screen.trigger()
    restored.close()
    third = MainWindow()
    qtbot.addWidget(third)
    assert third.acts.full_screen.isChecked()
    assert third.isFullScreen()
    third.header.tabs.setCurrentIndex(MONITOR)  # whose page doesn't exist yet
    with qtbot.waitSignal(third.completed):
        third.show()
    assert third.message.text() == ""
    assert third.pages.currentWidget() is third.workspace.monitor
    third.close()
    closed_early = MainWindow()
    qtbot.addWidget(closed_early)
    closed_early.close()
    closed_early.add_pages()
    assert closed_early.workspace is None


def test_window_comes_to_the_front_and_shows_help(open_window: OpenWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_ACTIVATION_TOKEN", "")
    window = open_window()
    for request_window in (partial(window.bring_to_front, "", "token"), window.tray.alerts_requested.emit):
        window.showMinimized()
        request_window()
        assert not window.isMinimized()
    assert os.environ["XDG_ACTIVATION_TOKEN"] == "token"
    assert window.workspace.monitor.isVisible()
    window.show_help()
    first = window.help.browser.source()
    window.show_help("changes.md")
    assert window.help.browser.source() != first


def test_failed_inspection_removes_the_report(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    qtbot.waitUntil(lambda: window.form.report is not None)
    window.inspector.failed.emit("The folder is gone.")
    assert window.form.report is None
    assert "The folder is gone." in join_visible_texts(window.form.card)
    window.inspector.progress.emit(InspectionProgress(3, 8))
    assert "3 of 8" in join_visible_texts(window.form.card)
    for end in (partial(window.job_panel.folder_chosen.emit, None), window.close):
        window.inspector.start(window.form.job or create_sample_job())
        end()
        assert not window.inspector.running


def test_readings_and_titles_reach_form_and_pages(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    work, form = window.workspace, window.form
    work.hosts.stop()
    for used_gib in (41, 140):
        first = gpu(0, memory_used_bytes=used_gib << 30)
        work.hosts.local.snapshot.emit(snapshot(first, gpu(1), gpu(2, cuda_index=2, lost=True)))
        assert (UUIDS[0] in form.environment.device_warnings) == (used_gib == 140)
    assert form.device_names()[UUIDS[0]] == "GPU 1"
    assert not any(problem.choices for problem in form.environment.device_warnings[UUIDS[0]])
    work.devices.set_selection(UUIDS[:1])
    assert form.environment.devices == UUIDS[:1]
    assert any(problem.choices for problem in form.environment.device_warnings[UUIDS[0]])
    qtbot.waitUntil(lambda: any("GPU 2" in row.text.text() for row in window.train.welcome.rows))
    work.hosts.add("box")
    work.hosts.add_snapshot("box", snapshot(gpu(3)))
    work.hosts.errors["box"] = "Connection refused."
    work.hosts.error_changed.emit("box", "Connection refused.")
    remote = f"box:{UUIDS[3]}"
    assert form.device_names()[remote] == work.history.titles[remote]
    assert form.environment.host_problems == {"box": "Connection refused."}
    run = supervise_here(write_run(8, None, strategy="ddp", devices=(UUIDS[0], remote)))
    append_events(run, Waiting(time=time.time(), position=1))
    window.show_run(run)
    qtbot.waitUntil(lambda: "next in the queue" in work.session.status.text)
    assert all(title in work.session.status.text for title in ("GPU 1", work.history.titles[remote]))
    window.acts.evaluate_run.trigger()
    assert UUIDS[0] in window.findChild(ModelView).form.devices.boxes
