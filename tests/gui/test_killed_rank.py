"""A rank that dies is named on screen at once, by the real window over a real run on two CPU workers."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPlainTextEdit, QSpinBox
from pytestqt.qtbot import QtBot

from gui.main_window import MainWindow

SOON_MS = 60_000
NAMED_S = 2.0
"""The figure: a rank that is killed under DDP is named on screen within this time."""
NAMED = "Rank 1 was ended by SIGKILL"


def log_of(window: MainWindow) -> str:
    views = [text for text in window.findChildren(QPlainTextEdit) if text.accessibleName() == "Log"]
    return "\n".join(view.toPlainText() for view in views)


def test_that_a_killed_rank_is_named_on_screen_within_two_seconds(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    window = open_window()
    assert window.track is not None
    workers = next(box for box in window.findChildren(QSpinBox) if box.accessibleName() == "CPU workers")
    workers.setValue(2)
    window.form.rows["strategy"].set_value("ddp")
    window.form.rows["epochs"].set_value(10_000)
    qtbot.waitUntil(window.form.train.isEnabled, timeout=SOON_MS)
    qtbot.mouseClick(window.form.train, Qt.MouseButton.LeftButton)
    store = window.track.store
    qtbot.waitUntil(lambda: len(store.data.steps.step) > 0, timeout=SOON_MS)
    assert store.data.started is not None
    supervisor = psutil.Process(store.data.started.supervisor_pid)
    ranks = [child for child in supervisor.children() if child.name().startswith("footplate-w")]
    begun = time.monotonic()
    next(rank for rank in ranks if rank.name() == "footplate-w1").kill()
    qtbot.waitUntil(lambda: NAMED in window.status.status.text() and NAMED in log_of(window), timeout=SOON_MS)
    assert time.monotonic() - begun < NAMED_S
    qtbot.waitUntil(lambda: window.status.status.text().startswith(f"Failed: {NAMED}"), timeout=SOON_MS)
    assert psutil.wait_procs(ranks, timeout=10)[1] == []
