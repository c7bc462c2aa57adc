"""Pausing and resuming by keyboard with a queued run: real engine on the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from tests.gui.whole.test_whole_path import points, press_train, ready, status, wait_for_status
from tests.support.widgets import OpenWindow

pytestmark = pytest.mark.long


def test_one_key_pauses_and_resumes(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = ready(open_window(), qtbot)
    qtbot.waitActive(window)
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
    window = ready(open_window(), qtbot)
    ahead = press_train(window, qtbot, epochs=400)
    qtbot.waitUntil(lambda: points(window) > 0)
    second = press_train(window, qtbot, epochs=400)
    wait_for_status(window, "Waiting", qtbot)
    assert status(window) == "Waiting · next in the queue for the CPU, behind MNIST CNN on sample"
    qtbot.waitUntil(lambda: window.header.running.text() == "1 running, 1 waiting")
    qtbot.mouseClick(window.status.stop, Qt.MouseButton.LeftButton)
    wait_for_status(window, "Stopped", qtbot)
    assert (second.state(), ahead.state()) == ("stopped", "running")
    window.show_run(ahead)
    wait_for_status(window, "Running", qtbot)
    qtbot.mouseClick(window.status.stop, Qt.MouseButton.LeftButton)
    wait_for_status(window, "Stopped", qtbot)
