"""Timer that limits how often views are updated."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer
from pytestqt.qtbot import QtBot

from gui.sources.update_timer import UpdateTimer


def test_update_timer_waits_longer_only_while_loading(qtbot: QtBot) -> None:
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
    assert [round(pause / 100, 1) for pause in pauses] == [1.0, 1.5, 2.2, 1.0]
    assert len(updates) == len(pauses)
    timer.schedule()
    qtbot.waitUntil(lambda: len(updates) == len(pauses) + 1)
