"""Desktop notifications about alerts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from PySide6.QtCore import QObject, QTimer

from engine.runs.notices import SENDER, Notice, NoticeSent
from engine.system import paths
from gui.alerts.watcher import Alert, Alerts
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.translation import tr

TOGETHER_MS = 1000
"""Milliseconds for collecting alerts, such as those of eight hot GPUs, into one notification."""
AT_MOST_EVERY_MS = 20_000
"""Minimum milliseconds between notifications. Alerts in the meantime are combined into the next one."""
LINES = 4
SENT = tr("Sent. If nothing appears, check whether the desktop is set to “do not disturb”.")


class NoticeSender(JsonLinesProcess):
    """Child process that delivers a notification with the code that supervisors use. Its result is a NoticeSent."""

    def __init__(self, parent: QObject | None = None) -> None:
        decode = msgspec.json.Decoder(NoticeSent).decode
        super().__init__(SENDER, tr("Sending the notification"), decode, parent, answer_of=Answer, cleans_up=True)

    def start(self, notice: Notice) -> None:
        """Start the child process, which delivers `notice`."""
        self.run(stdin=msgspec.json.encode(notice))


class _QueuedNotice(NamedTuple):
    """Notification to send. `on_result` is then called with the problem in sending it, or "" if there was none."""

    notice: Notice
    on_result: Callable[[str], None]


class DesktopNotices(QObject):
    """Sender of desktop notifications for alerts whose rules request them.

    It combines alerts that are raised shortly after one another, and limits the rate of notifications.
    """

    def __init__(
        self,
        alerts: Alerts,
        parent: QObject | None = None,
        *,
        sender: NoticeSender | None = None,
        together_ms: int = TOGETHER_MS,
        at_most_every_ms: int = AT_MOST_EVERY_MS,
    ) -> None:
        """Create a sender.

        Args:
            alerts: Alerts to notify about.
            parent: Owner of the object.
            sender: Process that delivers the notifications.
            together_ms: Time in which alerts are collected for a single notification.
            at_most_every_ms: Minimum time between notifications.
        """
        super().__init__(parent)
        self._alerts = alerts
        self._together_ms = together_ms
        self._pause_ms = at_most_every_ms
        self._waiting: dict[int, Alert] = {}  # alerts for the next notification, by number
        self._queue: deque[_QueuedNotice] = deque()
        """Notifications in the order of their requests. The first one is being sent."""
        self._sender = sender or NoticeSender(self)
        self._sender.done.connect(lambda sent: self._finish_notification(sent.desktop_problem))
        self._sender.failed.connect(self._finish_notification)
        self._collect_timer = QTimer(self, singleShot=True)  # collects alerts of about the same time in one notice
        self._collect_timer.timeout.connect(self._send_waiting)
        self._pause_timer = QTimer(self, singleShot=True)  # pause after a notice
        self._pause_timer.timeout.connect(self._send_waiting)
        alerts.raised.connect(self._on_raised)
        alerts.cleared.connect(lambda alert: self._waiting.pop(alert.number, None))
        alerts.test_requested.connect(self.send_test)

    def send_test(self, answer: Callable[[str], None]) -> None:
        """Queue a test notification without waiting for alerts, and call `answer` with a message about its result."""
        self._send("Footplate", tr("This is what an alert looks like."), lambda problem: answer(problem or SENT))

    def close_work(self) -> None:
        """Stop the process that delivers notifications, and start no other. Called when the window closes."""
        self._collect_timer.stop()
        self._pause_timer.stop()
        self._sender.close()

    def _on_raised(self, alert: Alert) -> None:
        """Collect a raised alert for the next notification, if its rule requests notifications."""
        if not self._alerts.rules[alert.kind].notify:
            return
        self._waiting[alert.number] = alert
        if not self._pause_timer.isActive() and not self._collect_timer.isActive():
            self._collect_timer.start(self._together_ms)

    def _send_waiting(self) -> None:
        """Send the collected alerts as one notification, and start the pause after it."""
        alerts, self._waiting = list(self._waiting.values()), {}
        if alerts:
            self._pause_timer.start(self._pause_ms)
            self._send(*describe_alerts(alerts), lambda _problem: None)

    def _send(self, title: str, text: str, on_result: Callable[[str], None]) -> None:
        """Queue a notification behind those being sent. `on_result` is called with a problem or ""."""
        folder = str(paths.home())
        notice = Notice(title=title, text=text, folder=folder, desktop=True, command="", variables={})
        self._queue.append(_QueuedNotice(notice, on_result))
        if len(self._queue) == 1:
            self._sender.start(notice)

    def _finish_notification(self, problem: str) -> None:
        """Pass `problem` ("" for none) to the callback of the notification that was sent, and send the next one."""
        self._queue.popleft().on_result(problem)
        if self._queue:
            self._sender.start(self._queue[0].notice)


def describe_alerts(alerts: list[Alert]) -> tuple[str, str]:
    """Return title and text of a notification about `alerts`. The text has a line for each of the first alerts."""
    if len(alerts) == 1:
        return f"{alerts[0].title}: {alerts[0].counted_title}", alerts[0].text
    lines = [alert.sentence for alert in alerts[:LINES]]
    if len(alerts) > LINES:
        lines.append(tr("… and {count} more").format(count=len(alerts) - LINES))
    return tr("{count} alerts").format(count=len(alerts)), "\n".join(lines)
