"""Desktop notifications about alerts, through the notification service on Linux, or the system tray."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QSystemTrayIcon

from engine.runs.notices import has_session_bus
from gui.alerts.channels import Channel, TrayChannel
from gui.alerts.watcher import Alert, Alerts
from gui.translation import tr

TOGETHER_MS = 1000
"""Milliseconds during which alerts, such as those of eight hot GPUs, are combined into one notification."""
AT_MOST_EVERY_MS = 20_000
"""Minimum milliseconds between notifications. Alerts in the meantime are combined into the next one."""
LINES = 4
NOWHERE = tr("This desktop has no notification service and no system tray; alerts appear only in the window.")
SENT = tr("Sent. If nothing appears, check whether the desktop is set to “do not disturb”.")


def find_channel(parent: QObject) -> Channel | None:
    """Return the best notification channel that this desktop offers, or None if there is none."""
    if has_session_bus():
        # Loading D-Bus takes time, and most sessions never need it.
        from PySide6.QtDBus import QDBusConnection

        from gui.alerts.freedesktop import FreedesktopChannel

        bus = QDBusConnection.sessionBus()
        if bus.isConnected():
            return FreedesktopChannel(bus, parent)
    if QSystemTrayIcon.isSystemTrayAvailable() and QSystemTrayIcon.supportsMessages():
        return TrayChannel(parent)
    return None


class DesktopNotices(QObject):
    """Sender of desktop notifications for alerts whose rules request them.

    It combines simultaneous alerts into one notification, and limits the rate of notifications.

    Signals:
        pressed(): the user has clicked a notification and wants to see the alerts.
    """

    pressed = Signal()

    def __init__(
        self,
        alerts: Alerts,
        parent: QObject | None = None,
        *,
        find: Callable[[QObject], Channel | None] = find_channel,
        together_ms: int = TOGETHER_MS,
        at_most_every_ms: int = AT_MOST_EVERY_MS,
    ) -> None:
        """Create a sender. It calls `find` for a channel when the first notification is due."""
        super().__init__(parent)
        self._alerts = alerts
        self._find = find
        self._together_ms = together_ms
        self._pause_ms = at_most_every_ms
        self._channel: Channel | None = None
        self._waiting: dict[int, Alert] = {}
        self._collect = QTimer(self, singleShot=True)
        self._collect.timeout.connect(self._send_waiting)
        self._rest = QTimer(self, singleShot=True)
        self._rest.timeout.connect(self._rested)
        alerts.raised.connect(self._raised)
        alerts.cleared.connect(lambda alert: self._waiting.pop(alert.number, None))
        alerts.test_requested.connect(self.send_test)

    def send_test(self, answer: Callable[[str], None]) -> None:
        """Send a notification immediately and call `answer` with a message about the result."""
        self._send("Footplate", tr("This is what an alert looks like."), lambda why: answer(why or SENT))

    def _raised(self, alert: Alert) -> None:
        if not self._alerts.rules[alert.kind].notify:
            return
        self._waiting[alert.number] = alert
        if not self._rest.isActive() and not self._collect.isActive():
            self._collect.start(self._together_ms)

    def _rested(self) -> None:
        if self._waiting:
            self._send_waiting()

    def _send_waiting(self) -> None:
        alerts, self._waiting = list(self._waiting.values()), {}
        if alerts:
            self._rest.start(self._pause_ms)
            self._send(*in_words(alerts), lambda _why: None)

    def _send(self, title: str, text: str, answer: Callable[[str], None]) -> None:
        if self._channel is None:
            self._channel = self._find(self)
            if self._channel is not None:
                self._channel.pressed.connect(self.pressed)
        if self._channel is None:
            answer(NOWHERE)
        else:
            self._channel.send(title, text, answer)


def in_words(alerts: list[Alert]) -> tuple[str, str]:
    """Return the title and the text of a notification about `alerts`. The text has a line for each of the first alerts."""
    if len(alerts) == 1:
        return f"{alerts[0].title}: {alerts[0].what}", alerts[0].text
    lines = [alert.sentence for alert in alerts[:LINES]]
    if len(alerts) > LINES:
        lines.append(f"… and {len(alerts) - LINES} more")
    return f"{len(alerts)} alerts", "\n".join(lines)
