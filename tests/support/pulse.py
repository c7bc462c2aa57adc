"""Measurement of pauses in an event loop."""

from __future__ import annotations

import faulthandler
import sys
import time
from pathlib import Path

from PySide6.QtCore import QTimer

INTERVAL_MS = 20
_LONG_S = 0.5
"""Seconds after which the stacks of all threads are printed to standard error."""


def read_core_wait_s() -> float:
    """Read the total time in seconds for which this thread was ready to run but waited for a CPU core.

    Source: docs.kernel.org/scheduler/sched-stats.html.
    """
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class StallMeter:
    """Meter of the longest interval between ticks of a 20 ms timer, without the time in which no CPU core was free."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last = self._now()
        self._timer = QTimer(interval=INTERVAL_MS)
        self._timer.timeout.connect(self._on_timer)
        self._timer.start()
        self._watch()

    def stop(self) -> None:
        self._timer.stop()
        faulthandler.cancel_dump_traceback_later()

    @staticmethod
    def _watch() -> None:
        faulthandler.dump_traceback_later(_LONG_S, file=sys.__stderr__)

    @staticmethod
    def _now() -> float:
        return time.monotonic() - read_core_wait_s()

    def _on_timer(self) -> None:
        now = self._now()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        self._watch()
