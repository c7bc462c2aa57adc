"""How the times of alerts are written."""

from __future__ import annotations

import time

from gui.monitor.alerts.rules import KINDS
from gui.monitor.alerts.watcher import Alert
from gui.run.words import duration


def clock(seconds: float, now: float | None = None) -> str:
    """ "14:02:31", with the day where that is not today: "21 Nov 14:02:31"."""
    at, today = time.localtime(seconds), time.localtime(now)
    return time.strftime("%H:%M:%S" if at[:3] == today[:3] else "%d %b %H:%M:%S", at)


def lasted(alert: Alert) -> str:
    """ "3:12 min", "in force", or "–" for something that happened and was over at once."""
    if alert.ended is None:
        return "in force"
    return "–" if KINDS[alert.kind].event else duration(max(0.0, alert.ended - alert.since))


def count(number: int) -> str:
    """ "1 alert" or "3 alerts"."""
    return f"{number} alert{'' if number == 1 else 's'}"
