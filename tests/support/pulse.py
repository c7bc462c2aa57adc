"""How long a window's event loop stands still."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QTimer

BEAT_MS = 20


def waited_for_a_core_s() -> float:
    """How long this thread has been ready to run while other tests had the cores, in seconds since it began
    (docs.kernel.org/scheduler/sched-stats.html)."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class Pulse:
    """Notices how long the event loop has been kept from a timer of 20 ms at most, but by a lack of cores."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last = self._now()
        self._timer = QTimer(interval=BEAT_MS)
        self._timer.timeout.connect(self._beat)
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    @staticmethod
    def _now() -> float:
        return time.monotonic() - waited_for_a_core_s()

    def _beat(self) -> None:
        now = self._now()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
