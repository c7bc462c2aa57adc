"""Desktop notifications for alerts: selection, frequency and result."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Signal
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.devices import Xid
from engine.runs.notices import Notice, NoticeSent
from gui.alerts.notifications import LINES, SENT, DesktopNotices, NoticeSender
from tests.gui.alerts.conftest import START, AlertsRecorder
from tests.gui.sources.devices.snapshots import gpu


class RecordingSender(NoticeSender):
    """Sender of desktop notifications that only records them."""

    sent = Signal(str, str)
    problem = ""
    responds = True

    def __init__(self) -> None:
        super().__init__()
        self.notifications: list[tuple[str, str]] = []

    def start(self, notice: Notice) -> None:
        assert (notice.desktop, notice.command) == (True, "")
        self.notifications.append((notice.title, notice.text))
        self.sent.emit(notice.title, notice.text)
        if self.responds:
            self.done.emit(NoticeSent(desktop_problem=self.problem))


@pytest.fixture
def desktop(qapp: QApplication) -> RecordingSender:
    return RecordingSender()


def notices(watched: AlertsRecorder, desktop: RecordingSender, pause_ms: int = 60_000) -> DesktopNotices:
    return DesktopNotices(watched.alerts, watched, sender=desktop, together_ms=10, at_most_every_ms=pause_ms)


def test_notification_has_place_and_cause(watched: AlertsRecorder, desktop: RecordingSender, qtbot: QtBot) -> None:
    notices(watched, desktop)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)))
    assert desktop.notifications == [("GPU 1: Xid error", "Xid 79: the GPU has fallen off the bus.")]


@pytest.mark.parametrize(("count", "last"), [(LINES, "GPU 3"), (8, "… and 4 more")])
def test_notifications_are_combined(
    watched: AlertsRecorder, desktop: RecordingSender, qtbot: QtBot, count: int, last: str
) -> None:
    notices(watched, desktop)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(*(gpu(n, cuda_index=n, lost=True, lost_since=START) for n in range(count)))
    ((title, text),) = desktop.notifications
    assert title == f"{count} alerts"
    lines = text.splitlines()
    assert len(lines) == min(count, LINES + 1)
    assert lines[0].startswith("GPU 0 – GPU lost: ")
    assert lines[-1].startswith(last)


def test_notification_rate_is_limited(watched: AlertsRecorder, desktop: RecordingSender, qtbot: QtBot) -> None:
    notices(watched, desktop, pause_ms=300)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)))
    with qtbot.assertNotEmitted(desktop.sent, wait=50):
        watched.feed(gpu(0), gpu(1, xids=(Xid(START, 13),)))
        watched.feed(gpu(0, lost=True, lost_since=START), gpu(1))
    qtbot.waitUntil(lambda: len(desktop.notifications) == 2)
    assert [title for title, _text in desktop.notifications] == ["GPU 1: Xid error", "2 alerts"]


@pytest.mark.parametrize("is_pausing", [False, True])
def test_nothing_is_sent_after_the_end(
    watched: AlertsRecorder, desktop: RecordingSender, qtbot: QtBot, is_pausing: bool
) -> None:
    source = notices(watched, desktop, pause_ms=50)
    if is_pausing:
        with qtbot.waitSignal(desktop.sent):
            watched.feed(gpu(0, xids=(Xid(START, 79),)))
    with qtbot.assertNotEmitted(desktop.sent, wait=100):
        watched.feed(gpu(0), gpu(1, xids=(Xid(START, 13),)))
        source.close_work()


def test_ended_alert_is_not_sent(watched: AlertsRecorder, desktop: RecordingSender, qtbot: QtBot) -> None:
    notices(watched, desktop, pause_ms=50)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)))
    watched.feed(gpu(0), gpu(1, xids=(Xid(START, 13),)))
    watched.alerts.acknowledge_all()
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, lost=True, lost_since=START))
    assert [title for title, _text in desktop.notifications] == ["GPU 1: Xid error", "GPU 1: GPU lost"]


def test_notification_needs_rule(watched: AlertsRecorder, desktop: RecordingSender, qtbot: QtBot) -> None:
    notices(watched, desktop)
    watched.set("xid", notify=False)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)), gpu(1, lost=True, lost_since=START))
    assert desktop.notifications[0][0] == "GPU 0: GPU lost"


@pytest.mark.parametrize("problem", ["", "There is no desktop."])
def test_test_notification_reports_its_result(watched: AlertsRecorder, desktop: RecordingSender, problem: str) -> None:
    results: list[str] = []
    desktop.problem = problem
    notices(watched, desktop)
    watched.alerts.test_requested.emit(results.append)
    assert results == [problem or SENT]
    assert len(desktop.notifications) == 1


def test_test_notification_waits_for_one_that_is_being_sent(
    watched: AlertsRecorder, desktop: RecordingSender, qtbot: QtBot
) -> None:
    results: list[str] = []
    desktop.responds = False
    notices(watched, desktop)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)))
    watched.alerts.test_requested.emit(results.append)
    assert [title for title, _text in desktop.notifications] == ["GPU 1: Xid error"]
    desktop.done.emit(NoticeSent())
    assert [title for title, _text in desktop.notifications] == ["GPU 1: Xid error", "Footplate"]
    desktop.done.emit(NoticeSent())
    assert results == [SENT]
