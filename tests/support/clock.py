"""Clock whose time a test sets."""

from __future__ import annotations


class Clock:
    """Replacement for the module `time`. Its time in seconds is `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now

    perf_counter = time = monotonic
