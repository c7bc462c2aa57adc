"""Report about a rank that is killed, in the real window with a real run on two CPU workers."""

from __future__ import annotations

import time

import numpy as np
import psutil
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPlainTextEdit, QSpinBox
from pytestqt.qtbot import QtBot

from gui.main_window import MainWindow
from tests.support.widgets import OpenWindow

NAMED_S = 2.0
"""Maximum number of seconds until the window names a rank that was killed under DDP."""
NAMED = "Rank 1 was killed by SIGKILL"


def log_of(window: MainWindow) -> str:
    views = [text for text in window.findChildren(QPlainTextEdit) if text.accessibleName() == "Log"]
    return "\n".join(view.toPlainText() for view in views)


def start_on_two_workers(window: MainWindow, qtbot: QtBot, restarts: int) -> list[psutil.Process]:
    """Start a run that restarts up to `restarts` times. Return its worker processes after the first step."""
    workers = next(box for box in window.findChildren(QSpinBox) if box.accessibleName() == "CPU workers")
    workers.setValue(2)
    for field, value in (("strategy", "ddp"), ("epochs", 10_000), ("restarts", restarts)):
        window.form.set_field(field, value)
    qtbot.waitUntil(window.form.train.isEnabled)
    qtbot.mouseClick(window.form.train, Qt.MouseButton.LeftButton)
    store = window.workspace.session
    qtbot.waitUntil(lambda: len(store.data.steps.step) > 0)
    supervisor = psutil.Process(store.data.started.supervisor_pid)
    return [child for child in supervisor.children() if child.name().startswith("footplate-w")]


@pytest.mark.long
def test_killed_rank_is_named_within_two_seconds(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    ranks = start_on_two_workers(window, qtbot, restarts=0)
    started_at = time.monotonic()
    next(rank for rank in ranks if rank.name() == "footplate-w1").kill()
    qtbot.waitUntil(lambda: NAMED in window.status.status.text() and NAMED in log_of(window))
    assert time.monotonic() - started_at < NAMED_S
    qtbot.waitUntil(lambda: window.status.status.text().startswith(f"Failed: {NAMED}"))
    assert psutil.wait_procs(ranks, timeout=120)[1] == []


@pytest.mark.long
@pytest.mark.faults
def test_killed_rank_restarts_with_the_reason(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = open_window()
    ranks = start_on_two_workers(window, qtbot, restarts=1)
    workspace, data = window.workspace, window.workspace.session.data
    qtbot.waitUntil(lambda: "last" in data.checkpoints)
    labels: list[str] = []
    workspace.session.changed.connect(lambda: labels.append(workspace.session.status.label))
    next(rank for rank in ranks if rank.name() == "footplate-w1").kill()
    qtbot.waitUntil(lambda: len(data.restarts) == 1 and NAMED in log_of(window))
    step_count, restart_step = len(data.steps.step), data.restarts[0].step
    qtbot.waitUntil(lambda: data.plan is not None and data.plan.from_step > 0)
    qtbot.waitUntil(lambda: workspace.session.status.label == "Running" and data.step > (restart_step or 0))
    assert set(labels) <= {"Running", "Restarting"}
    assert "Restarting" in labels
    assert step_count > 0
    assert (np.diff(data.steps.step.values) > 0).all()
    remarks = [line.text() for line in workspace.run.header.notes.findChildren(QLabel) if line.isVisible()]
    assert any(text.startswith(f"Restarted once at step {restart_step:,}: {NAMED}") for text in remarks)
    window.acts.stop.trigger()
    qtbot.waitUntil(lambda: window.status.status.text().startswith("Stopped"))
