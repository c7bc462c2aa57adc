"""Profiler of training steps, which times their parts and occasionally records a step on all ranks."""

from __future__ import annotations

import math
import time
from typing import ClassVar

import torch

from engine.contract.events import Part, RanksTimed, ScheduleTraced
from engine.strategies.collectives import Collectives
from engine.strategies.stopwatch import create_stopwatch

RECORD_S = 2.0
"""Minimum seconds between recorded steps."""
RECORD_FRACTION = 0.02
"""Minimum interval between recorded steps, as a fraction of the time since the start. Long runs record fewer."""
RECORD_COST = 0.01
"""Maximum fraction of the training time spent on recording steps. Expensive recordings are made less often."""


class StepProfiler:
    """Profiler that times the parts of steps. Subclasses also record details of the steps for which `is_due` is True.

    For each step, the training loop calls `begin` and `end`, and the strategy calls `mark` at the end of each part.
    While `recording` is True, subclasses record more about the step. `watch` is the stopwatch behind `mark`.
    """

    records: ClassVar[bool] = False
    reducing_parts: ClassVar[tuple[Part, ...]] = ("backward",)
    """Parts of a step that include communication, so that a rank may wait for other ranks in them."""

    def __init__(self, device: torch.device) -> None:
        self.watch = create_stopwatch(device)
        self.mark = self.watch.mark
        self.recording = False
        self.cost_s = 0.0
        """Additional time that the last recorded step took because of the recording, in seconds."""
        self._started = time.monotonic()
        self._recorded_at = -math.inf  # time at which a step was last recorded

    @property
    def is_due(self) -> bool:
        """True if the next step should be recorded."""
        now = time.monotonic()
        interval_s = max(RECORD_S, RECORD_FRACTION * (now - self._started), self.cost_s / RECORD_COST)
        return self.records and now - self._recorded_at >= interval_s

    def begin(self, *, record: bool) -> None:
        """Start a step. `record` must be equal on all ranks."""
        self.mark("logging")
        if record:
            self.watch.skip()
        self.recording = record

    def end(self, step: int, collectives: Collectives) -> RanksTimed | ScheduleTraced | None:
        """End a step. If the step was recorded, return an event about it on rank 0, otherwise None.

        All ranks call it together.
        """
        self.mark("logging")
        if not self.recording:
            return None
        self.recording = False
        event = self._collect_event(step, collectives)
        self._recorded_at = time.monotonic()
        if event is not None:
            self.watch.learn_fractions(event, self.reducing_parts)
        self.mark("logging")
        return event

    def _collect_event(self, step: int, collectives: Collectives) -> RanksTimed | ScheduleTraced | None:
        """Gather the records of a recorded step from all ranks. Return the event about them on rank 0, otherwise None.

        The base class records nothing. All ranks call it together.
        """
        return None
