"""Pausing, queueing and resuming real runs, and resuming an interrupted run in a new window."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.events import AnyEvent, CheckpointSaved, RunStarted, StepMetrics
from engine.runs.folder import RunFolder, list_runs
from gui.main_window import MainWindow
from gui.pages import RUNS
from gui.runs.page import RunsPage
from gui.runs.table import STATE
from gui.widgets.column_model import select_row
from tests.gui.whole.test_whole_path import points, press_train, status, wait_for_status, wait_until_ready
from tests.support.widgets import OpenWindow


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a signal of POSIX systems")
def test_killed_run_is_resumed_from_the_list(open_window: OpenWindow, qtbot: QtBot) -> None:
    first = wait_until_ready(open_window(), qtbot)
    killed = press_train(first, qtbot, epochs=400)
    qtbot.waitUntil(lambda: points(first) > 0)
    qtbot.waitUntil((killed.checkpoints / "last.pt").is_file)
    kill_run(killed)
    first.close()
    assert killed.state() == "interrupted"
    window = wait_until_ready(open_window(), qtbot)
    qtbot.waitUntil(lambda: "1 run was interrupted" in window.message.text())
    window.header.show_page(RUNS)
    resume = next(
        button
        for button in window.workspace.runs.interrupted.findChildren(QPushButton)
        if button.accessibleName().startswith("Resume")
    )
    before = window.form.job
    last_before = max(event.step for event in killed.events() if isinstance(event, CheckpointSaved))
    with qtbot.waitSignal(window.workspace.launcher.started):
        qtbot.mouseClick(resume, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: len(read_executions(killed)) == 2 and steps(read_executions(killed)[1]) != [])
    assert window.form.job == before
    assert steps(read_executions(killed)[1])[0] > last_before  # it didn't restart from the beginning
    runs = window.workspace.runs
    window.header.show_page(RUNS)
    qtbot.waitUntil(lambda: runs.interrupted.count == 0)
    window.acts.stop.trigger()
    qtbot.waitUntil(lambda: killed.state() == "stopped")
    wait_for_the_end(killed, qtbot)
    assert [run.run_id for run in list_runs()] == [killed.run_id]


@pytest.mark.long
def test_run_is_paused_changed_extended_and_forked(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = wait_until_ready(open_window(), qtbot)
    form_epochs = 400
    run = press_train(window, qtbot, epochs=form_epochs)
    qtbot.waitUntil(lambda: points(window) > 0)
    page = open_runs_page(window, run, "Running", qtbot)

    page.acts.pause.trigger()
    qtbot.waitUntil(lambda: run.state() == "paused")
    wait_for_the_end(run, qtbot)
    paused_at = max(steps(read_executions(run)[0]))
    open_runs_page(window, run, "Paused", qtbot)

    page.acts.change.trigger()
    qtbot.waitUntil(lambda: window.form.prefill is not None)
    assert f"step {paused_at:,} (last.pt" in window.job_panel.banner_text.text()
    form = window.form
    window.workspace.devices.set_selection(("cpu", "cpu"))
    few = paused_at // 10 + 3  # an epoch of the sample has more than ten steps
    form.set_field("epochs", few)
    press_start(window, form.train, qtbot)
    form = window.form
    assert form.prefill is None
    assert (form.field_value("epochs"), form.devices) == (form_epochs, ("cpu",))
    qtbot.waitUntil(lambda: run.state() == "completed")
    wait_for_the_end(run, qtbot)
    again = read_executions(run)[1]
    assert isinstance(again[0], RunStarted)
    assert (again[0].job.resolved_strategy, again[0].job.parallel.devices, again[0].execution) == (
        "ddp",
        ("cpu", "cpu"),
        2,
    )
    assert steps(again)[0] > paused_at
    done = max(steps(again))

    open_runs_page(window, run, "Completed", qtbot)
    page.acts.change.trigger()
    qtbot.waitUntil(lambda: window.form.field_value("epochs") == few + 5)
    form = window.form
    form.set_field("epochs", few + 1)
    press_start(window, form.train, qtbot)
    qtbot.waitUntil(lambda: len(read_executions(run)) == 3 and run.state() == "completed")
    wait_for_the_end(run, qtbot)
    assert steps(read_executions(run)[2])[0] > done

    open_runs_page(window, run, "Completed", qtbot)
    page.acts.fork.trigger()
    qtbot.waitUntil(lambda: window.form.field_value("resume_from") != "")
    form = window.form
    form.set_field("epochs", few + 2)
    fork = press_start(window, form.train, qtbot)
    assert fork.run_id != run.run_id
    qtbot.waitUntil(lambda: fork.state() == "completed")
    wait_for_the_end(fork, qtbot)
    assert min(steps(list(fork.events()))) > max(steps(read_executions(run)[2]))
    assert window.form.field_value("resume_from") == ""
    assert {each.run_id for each in list_runs()} == {run.run_id, fork.run_id}


def open_runs_page(window: MainWindow, run: RunFolder, state: str, qtbot: QtBot) -> RunsPage:
    """Open the Runs page, wait until it shows `run` in the state `state`, and select the run."""
    window.header.show_page(RUNS)
    page = window.workspace.runs

    def listed() -> bool:
        row = page.model.position(run.run_id)
        return row is not None and page.model.index(row, STATE).data() == state

    qtbot.waitUntil(listed)
    row = page.model.position(run.run_id)
    assert row is not None
    select_row(page.table, row)
    return page


def press_start(window: MainWindow, button: QPushButton, qtbot: QtBot) -> RunFolder:
    """Press `button` and return the run that it starts."""
    qtbot.wait(1)  # the next events validate an edit, which moves the button
    qtbot.waitUntil(button.isEnabled)
    qtbot.wait(1)  # the next events update the layout
    with qtbot.waitSignal(window.workspace.launcher.started) as signal:
        qtbot.mouseClick(button, Qt.MouseButton.LeftButton)
    return signal.args[0]


def read_executions(run: RunFolder) -> list[list[AnyEvent]]:
    """Return the events of each execution of the run."""
    found: list[list[AnyEvent]] = []
    for event in run.events():
        if isinstance(event, RunStarted):
            found.append([])
        found[-1].append(event)
    return found


def steps(events: list[AnyEvent]) -> list[int]:
    return [event.step for event in events if isinstance(event, StepMetrics)]


def wait_for_the_end(run: RunFolder, qtbot: QtBot) -> None:
    supervisor = run.supervisor()
    qtbot.waitUntil(lambda: not supervisor.alive())


def kill_run(run: RunFolder) -> None:
    """Kill the run's supervisor and remove its socket, as after a power failure. Wait until its workers have exited."""
    supervisor = run.supervisor()
    workers = psutil.Process(supervisor.pid).children(recursive=True)
    os.kill(supervisor.pid, signal.SIGKILL)
    _ended, alive = psutil.wait_procs(workers, timeout=120)
    assert alive == []
    Path(supervisor.endpoint.removeprefix("unix:")).unlink()


pytestmark = pytest.mark.long


def test_one_key_pauses_and_resumes(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = wait_until_ready(open_window(), qtbot)
    qtbot.waitUntil(window.isActiveWindow)
    run = press_train(window, qtbot, epochs=400)
    qtbot.waitUntil(lambda: points(window) > 0 and status(window).startswith("Running"))
    qtbot.keyClick(window, Qt.Key.Key_P, Qt.KeyboardModifier.ControlModifier)
    wait_for_status(window, "Paus", qtbot)
    wait_for_status(window, "Paused", qtbot)
    assert "devices are free" in status(window)
    data = window.workspace.session.data
    first, paused_at = data.executions, data.step
    assert (run.state(), first) == ("paused", 1)
    assert window.status.pause.text() == "Resume"
    qtbot.keyClick(window, Qt.Key.Key_P, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: data.executions == 2 and data.step > paused_at)
    wait_for_status(window, "Running", qtbot)
    assert window.workspace.session.run.path == run.path
    assert (np.diff(data.steps.step.values) > 0).all()
    assert (np.diff(data.steps.seconds.values) > 0).all()
    assert any(line.text().startswith("Resumed at") for line in window.workspace.run.header.notes.findChildren(QLabel))
    qtbot.keyClick(window, Qt.Key.Key_Period, Qt.KeyboardModifier.ControlModifier)
    wait_for_status(window, "Stopped", qtbot)


def test_second_run_is_queued_until_stopped(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = wait_until_ready(open_window(), qtbot)
    blocking = press_train(window, qtbot, epochs=400)
    qtbot.waitUntil(lambda: points(window) > 0)
    second = press_train(window, qtbot, epochs=401)  # with the same job, the window would ask first
    wait_for_status(window, "Waiting", qtbot)
    expected = f"Waiting · next in the queue for the CPU, behind “sample · {blocking.run_id[-4:]}”"
    qtbot.waitUntil(lambda: status(window) == expected)  # its name is known once the list of runs has been read
    qtbot.waitUntil(lambda: window.header.running.text() == "1 running, 1 queued")
    window.acts.stop.trigger()
    wait_for_status(window, "Stopped", qtbot)
    assert (second.state(), blocking.state()) == ("stopped", "running")
    window.show_run(blocking)
    wait_for_status(window, "Running", qtbot)
    window.acts.stop.trigger()
    wait_for_status(window, "Stopped", qtbot)
