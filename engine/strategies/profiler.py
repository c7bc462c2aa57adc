"""Profiler of a rank's steps: time of their parts, and occasional steps that all ranks record."""

from __future__ import annotations

import math
import time
from typing import ClassVar

import torch

from engine.contract.events import Part, RanksTimed, ScheduleTraced
from engine.strategies.collectives import Collectives
from engine.strategies.stopwatch import stopwatch

RECORD_S = 2.0
"""Minimum seconds between recorded steps."""
RECORD_SHARE = 0.02
"""Minimum interval between recorded steps as a fraction of the run's time, so that a long run records fewer."""
RECORD_COST = 0.01
"""Fraction of the time that recording may cost; it decides if recording a step is too expensive."""


class StepProfiler:
    """Profiler of a single rank, which records no steps.

    In each step, `begin` is called, the strategy marks its parts with `mark`, and `end` is called. While `recording` is
    True, the strategy also records the times that its profiler reports. `watch` measures as long as it runs.
    """

    records: ClassVar[bool] = False
    reducing_parts: ClassVar[tuple[Part, ...]] = ("backward",)
    """Parts of a data-parallel step that include waiting for other ranks."""

    def __init__(self, device: torch.device) -> None:
        self.watch = stopwatch(device)
        self.mark = self.watch.mark
        self.recording = False
        self.cost_s = 0.0
        """Seconds that the last recorded step took longer for being recorded."""
        self._started = time.monotonic()
        self._recorded_at = -math.inf

    @property
    def is_due(self) -> bool:
        """True if it is time to record a step."""
        now = time.monotonic()
        interval_s = max(RECORD_S, RECORD_SHARE * (now - self._started), self.cost_s / RECORD_COST)
        return self.records and now - self._recorded_at >= interval_s

    def begin(self, *, record: bool) -> None:
        """Start a step; either all ranks record it or none does."""
        self.mark("logging")
        if record:
            self.watch.skip()
        self.recording = record

    def end(self, step: int, collectives: Collectives) -> RanksTimed | ScheduleTraced | None:
        """End a step; return its times on rank 0 if it was recorded, else None. All ranks call it together."""
        self.mark("logging")
        if not self.recording:
            return None
        self.recording = False
        event = self._recorded(step, collectives)
        self._recorded_at = time.monotonic()
        if event is not None:
            self.watch.learn(event, self.reducing_parts)
        self.mark("logging")
        return event

    def _recorded(self, step: int, collectives: Collectives) -> RanksTimed | ScheduleTraced | None:
        return None
