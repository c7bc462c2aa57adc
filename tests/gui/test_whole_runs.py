"""A run that was cut off is found by the next window, and goes on from there with one press."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from engine.contract.events import CheckpointSaved, StepMetrics
from engine.contract.runs import RunFolder, list_runs
from gui.main_window import RUNS, MainWindow
from tests.gui.test_whole_path import points, press_train, ready

SOON_MS = 60_000


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is a signal of POSIX systems")
def test_that_a_killed_run_is_resumed_from_the_list(open_window: Callable[[], MainWindow], qtbot: QtBot) -> None:
    first = ready(open_window(), qtbot)
    killed = press_train(first, qtbot, epochs=400)
    qtbot.waitUntil(lambda: points(first) > 0, timeout=SOON_MS)
    qtbot.waitUntil((killed.checkpoints / "last.pt").is_file, timeout=SOON_MS)
    kill(killed)
    first.close()
    assert killed.state() == "interrupted"
    window = ready(open_window(), qtbot)
    assert window.track is not None
    qtbot.waitUntil(lambda: "1 run was interrupted" in window.message.text(), timeout=SOON_MS)
    window.header.show_page(RUNS)
    resume = next(
        button
        for button in window.track.runs.interrupted.findChildren(QPushButton)
        if button.accessibleName().startswith("Resume")
    )
    before = window.form.job
    with qtbot.waitSignal(window.track.launcher.started, timeout=SOON_MS) as started:
        qtbot.mouseClick(resume, Qt.MouseButton.LeftButton)
    assert started.args is not None
    resumed: RunFolder = started.args[0]
    qtbot.waitUntil(lambda: points(window) > 0, timeout=SOON_MS)
    job = resumed.job()
    assert job is not None
    assert job.resume_from == str(killed.checkpoints / "last.pt")
    assert window.form.job == before
    first_step = next(event.step for event in resumed.events() if isinstance(event, StepMetrics))
    last_before = max(event.step for event in killed.events() if isinstance(event, CheckpointSaved))
    assert first_step > last_before  # it did not begin anew
    runs = window.track.runs
    qtbot.waitUntil(lambda: runs.interrupted.count == 0, timeout=SOON_MS)
    qtbot.mouseClick(window.status.stop, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: resumed.state() == "stopped", timeout=SOON_MS)
    supervisor = resumed.supervisor()
    assert supervisor is not None
    qtbot.waitUntil(lambda: not supervisor.alive(), timeout=SOON_MS)
    assert {run.run_id for run in list_runs()} == {killed.run_id, resumed.run_id}


def kill(run: RunFolder) -> None:
    """Ends the supervisor as a power cut would, after which no socket is there either; its workers die with it."""
    supervisor = run.supervisor()
    assert supervisor is not None
    workers = psutil.Process(supervisor.pid).children(recursive=True)
    os.kill(supervisor.pid, signal.SIGKILL)
    _gone, alive = psutil.wait_procs(workers, timeout=10)
    assert alive == []
    Path(supervisor.endpoint.removeprefix("unix:")).unlink()
