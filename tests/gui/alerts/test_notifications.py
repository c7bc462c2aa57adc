"""Desktop notifications for alerts: selection, frequency, and delivery over a real bus."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Signal
from PySide6.QtDBus import QDBusConnection
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.devices import Xid
from gui.alerts.channels import Channel
from gui.alerts.freedesktop import FreedesktopChannel
from gui.alerts.notifications import LINES, NOWHERE, SENT, DesktopNotices, find_channel
from tests.gui.alerts.conftest import START, Watched
from tests.gui.sources.devices.snapshots import gpu

ROOT = Path(__file__).parents[3]
BUS = shutil.which("dbus-daemon")


class Desktop(Channel):
    """Notification channel that records the notifications."""

    sent = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.notifications: list[tuple[str, str]] = []

    def send(self, title: str, text: str, answer: Callable[[str], None]) -> None:
        self.notifications.append((title, text))
        self.sent.emit(title, text)
        answer("")


@pytest.fixture
def desktop(qapp: QApplication) -> Desktop:
    return Desktop()


def notices(watched: Watched, desktop: Desktop | None, pause_ms: int = 60_000) -> DesktopNotices:
    return DesktopNotices(
        watched.alerts, watched, find=lambda _parent: desktop, together_ms=10, at_most_every_ms=pause_ms
    )


def test_notification_has_place_and_cause(watched: Watched, desktop: Desktop, qtbot: QtBot) -> None:
    notices(watched, desktop)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)))
    assert desktop.notifications == [("GPU 1: Xid error", "Xid 79: the GPU has fallen off the bus.")]


def test_notifications_are_combined(watched: Watched, desktop: Desktop, qtbot: QtBot) -> None:
    notices(watched, desktop)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(*(gpu(n, cuda_index=n, lost=True, lost_since=START) for n in range(8)))
    ((title, text),) = desktop.notifications
    assert title == "8 alerts"
    lines = text.splitlines()
    assert len(lines) == LINES + 1
    assert lines[0].startswith("GPU 0 – GPU lost: ")
    assert lines[-1] == "… and 4 more"


def test_notification_rate_is_limited(watched: Watched, desktop: Desktop, qtbot: QtBot) -> None:
    notices(watched, desktop, pause_ms=300)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)))
    with qtbot.assertNotEmitted(desktop.sent, wait=50):
        watched.feed(gpu(0), gpu(1, xids=(Xid(START, 13),)))
        watched.feed(gpu(0, lost=True, lost_since=START), gpu(1))
    qtbot.waitUntil(lambda: len(desktop.notifications) == 2)
    assert [title for title, _text in desktop.notifications] == ["GPU 1: Xid error", "2 alerts"]


def test_ended_alert_is_not_sent(watched: Watched, desktop: Desktop, qtbot: QtBot) -> None:
    notices(watched, desktop, pause_ms=50)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)))
    watched.feed(gpu(0), gpu(1, xids=(Xid(START, 13),)))
    watched.alerts.acknowledge_all()
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, lost=True, lost_since=START))
    assert [title for title, _text in desktop.notifications] == ["GPU 1: Xid error", "GPU 1: GPU lost"]


def test_notification_needs_rule(watched: Watched, desktop: Desktop, qtbot: QtBot) -> None:
    notices(watched, desktop)
    watched.set("xid", notify=False)
    with qtbot.waitSignal(desktop.sent):
        watched.feed(gpu(0, xids=(Xid(START, 79),)), gpu(1, lost=True, lost_since=START))
    assert desktop.notifications[0][0] == "GPU 0: GPU lost"


def test_notification_press_is_forwarded(watched: Watched, desktop: Desktop, qtbot: QtBot) -> None:
    sender = notices(watched, desktop)
    sender.send_test(lambda _result: None)
    with qtbot.waitSignal(sender.pressed):
        desktop.pressed.emit()


@pytest.mark.parametrize(("has_channel", "expected"), [(True, SENT), (False, NOWHERE)])
def test_test_notification_reports_its_result(
    watched: Watched, desktop: Desktop, has_channel: bool, expected: str
) -> None:
    results: list[str] = []
    notices(watched, desktop if has_channel else None)
    watched.alerts.test_requested.emit(results.append)
    assert results == [expected]
    assert len(desktop.notifications) == has_channel


def test_find_channel_starts_no_bus(qapp: QApplication, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    assert find_channel(qapp) is None  # Qt's offscreen platform has no tray either


@pytest.fixture
def address() -> Iterator[str]:
    """Yield the address of a private bus."""
    if BUS is None:
        pytest.skip("there is no dbus-daemon here")
    bus = subprocess.Popen(
        [BUS, "--session", "--nofork", "--nopidfile", "--print-address"], stdout=subprocess.PIPE, text=True
    )
    yield bus.stdout.readline().strip()
    QDBusConnection.disconnectFromBus("sender")
    bus.terminate()
    bus.wait()
    bus.stdout.close()


@pytest.fixture
def service(address: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.gui.alerts.notification_service", address],
        stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n"
    yield child
    child.terminate()
    child.wait()
    child.stdout.close()


@pytest.fixture
def channel(address: str, qapp: QApplication) -> FreedesktopChannel:
    return FreedesktopChannel(QDBusConnection.connectToBus(address, "sender"), patience_ms=5000)


def send(channel: FreedesktopChannel, qtbot: QtBot, title: str, text: str = "") -> str:
    """Send a notification and return its result."""
    results: list[str] = []
    channel.send(title, text, results.append)
    assert results == []  # it is reported later
    qtbot.waitUntil(lambda: bool(results))
    return results[0]


def test_freedesktop_notification(channel: FreedesktopChannel, service: subprocess.Popen[str], qtbot: QtBot) -> None:
    assert send(channel, qtbot, "GPU 0: Temperature", "93 °C <&>") == ""
    assert json.loads(service.stdout.readline()) == {
        "app": "Footplate",
        "replaces": 0,
        "title": "GPU 0: Temperature",
        "text": "93 °C &lt;&amp;&gt;",
        "actions": ["default", "Show"],
    }


@pytest.mark.usefixtures("service")
def test_freedesktop_press_is_reported_once(channel: FreedesktopChannel, qtbot: QtBot) -> None:
    presses: list[None] = []
    channel.pressed.connect(lambda: presses.append(None))
    with qtbot.waitSignal(channel.pressed):
        send(channel, qtbot, "press me")
    assert len(presses) == 1


def test_freedesktop_missing_service(channel: FreedesktopChannel, qtbot: QtBot) -> None:
    assert send(channel, qtbot, "GPU 0")


def test_freedesktop_timeout(address: str, service: subprocess.Popen[str], qapp: QApplication, qtbot: QtBot) -> None:
    channel = FreedesktopChannel(QDBusConnection.connectToBus(address, "sender"), patience_ms=300)
    service.send_signal(signal.SIGSTOP)
    assert send(channel, qtbot, "GPU 0")
    service.send_signal(signal.SIGCONT)
