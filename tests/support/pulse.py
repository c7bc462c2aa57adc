"""How long a window's event loop stands still."""

from __future__ import annotations

import faulthandler
import sys
import time
from pathlib import Path

from PySide6.QtCore import QTimer

BEAT_MS = 20
_LONG_S = 0.5
"""What every thread does after so long a stillness is written to the test's error output."""


def waited_for_a_core_s() -> float:
    """How long this thread has been ready to run while other tests had the cores, in seconds since it began
    (docs.kernel.org/scheduler/sched-stats.html).
    """
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


class Pulse:
    """Notices how long the event loop has been kept from a timer of 20 ms at most, but by a lack of cores."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last = self._now()
        self._timer = QTimer(interval=BEAT_MS)
        self._timer.timeout.connect(self._beat)
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
        return time.monotonic() - waited_for_a_core_s()

    def _beat(self) -> None:
        now = self._now()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        self._watch()
