"""Starting of runs with the form, and the states that the window shows."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from unittest.mock import Mock

import pytest
from PySide6.QtWidgets import QApplication, QMessageBox, QTabBar
from pytestqt.qtbot import QtBot

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.runs.folder import RunFolder, create_run
from gui import run_control
from gui.form.field_row import FieldRow
from gui.main_window import MainWindow
from gui.pages import MONITOR, RUNS
from gui.sources.launcher import Launcher
from gui.sources.run_session import RunSession
from gui.sources.run_status import RunStatus
from gui.sources.settings import Settings
from gui.status_bar import StatusBar
from gui.widgets.labels import IconLabel
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot
from tests.gui.sources.written_runs import job, supervise_here, write_run
from tests.support.widgets import OpenWindow, join_visible_texts, suspend_style_sheet


def test_same_job_restarts_only_after_a_question(open_window: OpenWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Job] = []
    monkeypatch.setattr(Launcher, "start", lambda _launcher, job: started.append(job))
    window, first = open_window(), job()
    assert not window.settings.job_file.exists()
    with monkeypatch.context() as patch:
        patch.setattr(window.workspace.launcher, "busy", True)
        window.job_panel.train_requested.emit(first)
    assert started == []
    assert window.settings.job_file.exists()  # the user's job is saved at each start
    window.job_panel.train_requested.emit(first)
    assert window.status.status.text() == "Starting · preparing the run"
    window.workspace.launcher.started.emit(create_run(first))
    second = first.with_fields(epochs=first.training.epochs + 1)
    window.job_panel.train_requested.emit(second)
    assert len(started) == 2
    for is_accepted in (False, True):
        window.job_panel.train_requested.emit(first.with_fields(start="at_once"))
        assert len(started) == 2
        (box,) = filter(QMessageBox.isVisible, window.findChildren(QMessageBox))
        assert window.form.environment.is_starting != is_accepted
        box.done(is_accepted)
    assert len(started) == 3
    window.job_panel.train_requested.emit(second)
    window.workspace.launcher.failed.emit([Problem("", "The disk is full.")])
    assert "preparing" not in window.status.status.text()
    window.workspace.launcher.started.emit(create_run(first.with_fields(name="resumed")))
    window.job_panel.train_requested.emit(second)
    assert len(started) == 5


def test_started_run_is_shown_from_its_first_plot(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    window.show_run(write_run(80))
    page = window.workspace.run
    qtbot.waitUntil(lambda: page.log.visibleRegion().isEmpty() and page.charts.loss.isVisible())
    page.header.tabs.setFocus()
    while page.log.visibleRegion().isEmpty():
        window.focusNextChild()  # as Tab does, which scrolls to the log
    window.workspace.launcher.started.emit(create_run(job()))
    qtbot.waitUntil(lambda: page.charts.loss.visibleRegion().boundingRect() == page.charts.loss.rect())


def test_job_of_another_window_restarts_only_after_a_question(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Job] = []
    monkeypatch.setattr(Launcher, "start", lambda _launcher, job: started.append(job))
    window, run = open_window(), create_run(job())
    with qtbot.waitSignal(
        window.workspace.run_list.complete, check_params_cb=lambda read: run.run_id in read.active_jobs
    ):
        window.workspace.run_list.refresh()
    window.job_panel.train_requested.emit(job())
    assert started == []
    assert window.findChildren(QMessageBox)


def test_header_counts_runs_and_alerts(open_window: OpenWindow) -> None:
    window = open_window()
    header, alerts = window.header, window.workspace.alerts
    for counts, text in (((0, 2), "2 queued"), ((1, 2), "1 running, 2 queued")):
        header.show_running(*counts)
        assert header.running.text() == header.running.accessibleName() == text
    header.running.click()
    assert window.acts.page == RUNS
    header.show_running(0, 0)
    assert (header.running.isVisible(), header.running.accessibleName()) == (False, "Active runs")
    assert {each.objectName() for each in (header.devices, header.settings, header.help)} == {"flat"}
    window.workspace.hosts.latest[""] = snapshot(gpu(0, memory_used_bytes=140 << 30))
    for lost in ((), (0,), (0, 1)):
        alerts.evaluate("", snapshot(*(gpu(n, lost=n in lost) for n in (0, 1))), {})
    assert (header.alerts.text(), header.alerts.isVisible()) == ("2", True)
    assert header.tabs.tabButton(MONITOR, QTabBar.ButtonPosition.RightSide) is header.alerts
    assert header.tabs.accessibleTabName(MONITOR) == "Monitor page, 2 alerts"
    assert set(window.form.environment.device_warnings) == {UUIDS[0]}
    alerts.acknowledge_all()
    assert not header.alerts.isVisible()
    assert header.tabs.accessibleTabName(MONITOR) == "Monitor page"


def test_title_shows_the_progress_of_the_run(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, window = write_run(8, name="night"), open_window()
    qtbot.waitUntil(lambda: window.workspace.runs.model.find(run.run_id) is not None)
    window.show_run(run)
    for status, title in (
        (RunStatus(label="Running", text="Running", fraction=0.32), "32% · night · Footplate"),
        (RunStatus(label="Completed", text="Completed", fraction=1.0), "Footplate"),
        (RunStatus(label="Starting", text="Starting"), "Footplate"),
    ):
        monkeypatch.setattr(RunSession, "status", status)
        window.workspace.session.changed.emit()
        assert window.windowTitle() == title


def test_reopened_window_never_shows_idle_or_device_problems(
    styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings()
    settings.remember_job(job(strategy="ddp", devices=("cpu", "cpu")))
    supervise_here(write_run(20, None))
    texts: list[str] = []
    show_idle, show_problems = StatusBar.show_idle, FieldRow.show_problems

    def record_idle(bar: StatusBar, text: str) -> None:
        texts.append(text)
        show_idle(bar, text)

    def record_problems(row: FieldRow, problems: Sequence[Problem]) -> None:
        texts.extend(str(problem) for problem in problems if problem.field in ("strategy", "devices"))
        show_problems(row, problems)

    monkeypatch.setattr(StatusBar, "show_idle", record_idle)
    monkeypatch.setattr(FieldRow, "show_problems", record_problems)
    with suspend_style_sheet(styled):
        window = MainWindow(settings)
    qtbot.addWidget(window)
    window.form.validate()
    assert window.form.devices == ("cpu", "cpu")
    window.show()
    qtbot.waitUntil(lambda: window.status.status.text().startswith("Running"))
    window.form.validate()
    assert set(texts) <= {"Starting…"}


def test_requests_of_pages_reach_the_form_and_the_message(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, window = write_run(8), open_window()
    (run.checkpoints / "last.pt").write_bytes(b"weights")
    work, message = window.workspace, window.message
    work.run.setting_requested.emit("epochs", 7)
    assert window.form.values()["epochs"] == 7
    assert message.text() == "Epochs is set to 7 for the next run."
    icon = message.findChild(IconLabel)
    assert icon.accessibleName() == "Information"
    work.run.setting_requested.emit("unheard-of", 8)
    assert "7" in message.text()
    work.monitor.stop_run.emit("run-gone")
    qtbot.waitUntil(lambda: message.text().startswith("Couldn't stop run-gone: "))
    assert icon.accessibleName() == "Warning"
    work.run.changes_requested.emit(RunFolder("/gone/run-1"), {}, True)
    qtbot.waitUntil(lambda: message.text().startswith("Couldn't put the job of run-1 into the form: "))
    monkeypatch.setattr(run_control, "request_stop", lambda run_id: RunFolder(f"/runs/{run_id}"))
    work.monitor.stop_run.emit("run-2")
    qtbot.waitUntil(lambda: message.text() == "run-2 stops after the current step.")
    for continues_run in (False, True):
        work.run.changes_requested.emit(run, {"epochs": 12}, continues_run)
        qtbot.waitUntil(lambda: window.form.prefill is not None)
        prefill = window.form.prefill
        assert (prefill.run is not None, prefill.preset["epochs"]) == (continues_run, 12)
        window.job_panel.end_prefill()
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "No space left on device", "job.toml")
        patch.setattr(Settings, "remember_job", Mock(side_effect=full))
        patch.setattr(Launcher, "start", lambda _launcher, _job: None)
        window.job_panel.train_requested.emit(job())
    assert message.text() == "Couldn't save the form for the next start: No space left on device (job.toml)."


def test_window_shows_start_failures_and_run_list_errors(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window()
    work = window.workspace
    window.acts.stop.set_disabled_reason()
    work.launcher.failed.emit([Problem("", "The disk is full.")])
    assert "The disk is full." in join_visible_texts(window)
    with monkeypatch.context() as patch:
        patch.setattr(work.launcher, "is_closing", True)
        window.form.submission.is_requested_here = True
        work.launcher.failed.emit([Problem("epochs", "Too many."), Problem("", "The disk is full.")])
    assert window.message.text() == "Too many. The disk is full."
    work.run_list.failed.emit("Permission denied")
    assert "Permission denied" in window.status.status.text()
    with qtbot.waitSignal(work.run_list.complete):
        work.run_list.refresh()
    assert "Permission denied" not in window.status.status.text()


def test_pause_action_pauses_or_resumes(open_window: OpenWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(RunSession, "pause", lambda _session: calls.append("pause"))
    monkeypatch.setattr(Launcher, "resume", lambda _launcher, run, changes: calls.append((run, dict(changes))))
    window, run = open_window(), write_run(8, "paused")
    window.show_run(run)
    for can_resume in (False, True):
        monkeypatch.setattr(RunSession, "status", RunStatus(label="Paused" if can_resume else "Running"))
        window.acts.pause.set_disabled_reason()
        window.acts.pause.trigger()
    assert calls == ["pause", (run, {})]


def test_edits_prepare_a_start_and_update_the_status(open_window: OpenWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(Launcher, "preload", lambda _launcher: calls.append("preload"))
    window = open_window()
    assert calls == ["preload"]
    calls.clear()
    window.status.show_idle("outdated")
    window.job_panel.user_edited.emit()
    assert calls == ["preload"]
    window.job_panel.changed.emit()
    assert "outdated" not in window.status.status.text()
