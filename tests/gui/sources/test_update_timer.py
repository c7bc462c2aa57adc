"""Timer that limits how often views are updated."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QObject, QTimer
from pytestqt.qtbot import QtBot

from gui.sources import update_timer
from gui.sources.update_timer import UpdateTimer
from tests.support.clock import Clock


def test_update_timer_waits_longer_only_while_loading(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Clock(1000.0)
    monkeypatch.setattr(update_timer, "time", time)
    parent = QObject()
    timer = UpdateTimer(parent)
    (clock,) = timer.findChildren(QTimer)
    updates: list[None] = []
    timer.due.connect(lambda: updates.append(None))

    def measure_pause_ms() -> int:
        """Notify, schedule the next update, and return the pause before it. The update is then cancelled."""
        timer.schedule()
        timer.notify()
        assert not clock.isActive()
        timer.schedule()
        assert clock.isActive()
        timer.stop()
        return clock.interval()

    pauses = [measure_pause_ms()]
    for is_loading in (True, True, False):
        timer.set_loading(is_loading)
        pauses.append(measure_pause_ms())
    assert pauses == [100, 150, 225, 100]
    assert len(updates) == len(pauses)
    time.now += 0.0625
    timer.schedule()
    time.now += 0.02
    timer.schedule()  # already scheduled
    assert clock.interval() == 37
    qtbot.waitUntil(lambda: len(updates) == len(pauses) + 1)
