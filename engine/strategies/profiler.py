"""Where the time of a rank's steps goes: among their parts as they go, and now and then in a step that all ranks look
into.
"""

from __future__ import annotations

import math
import time
from typing import ClassVar

import torch

from engine.contract.events import Part, RanksTimed, ScheduleTraced
from engine.strategies.collectives import Collectives
from engine.strategies.stopwatch import stopwatch

RECORD_S = 2.0
"""The least seconds between recorded steps."""
RECORD_SHARE = 0.02
"""The least time between recorded steps as a share of the run's time so far, so that a long run records fewer."""


class StepProfiler:
    """That of a rank that is alone, in whose steps there is nothing to record.

    What makes a step calls `begin`, has the strategy `mark` the parts of it, and calls `end`. While `recording`, the
    strategy also notes what its kind of profiler tells of. The `watch` measures while it runs.
    """

    records: ClassVar[bool] = False
    joined_in: ClassVar[tuple[Part, ...]] = ("backward",)
    """The parts of a step in which the ranks of a data-parallel strategy wait for each other."""

    def __init__(self, device: torch.device) -> None:
        self.watch = stopwatch(device)
        self.mark = self.watch.mark
        self.recording = False
        self._begun = time.monotonic()
        self._recorded_at = -math.inf

    @property
    def is_due(self) -> bool:
        """Whether it is time to record a step again."""
        now = time.monotonic()
        return self.records and now - self._recorded_at >= max(RECORD_S, RECORD_SHARE * (now - self._begun))

    def begin(self, *, record: bool) -> None:
        """A step begins, which all ranks record or none."""
        self.mark("logging")
        if record:
            self.watch.skip()
        self.recording = record

    def end(self, step: int, collectives: Collectives) -> RanksTimed | ScheduleTraced | None:
        """The step has been made: where its time went if it was recorded, on rank 0. All ranks call it together."""
        self.mark("logging")
        if not self.recording:
            return None
        self.recording = False
        event = self._recorded(step, collectives)
        self._recorded_at = time.monotonic()
        if event is not None:
            self.watch.learn(event, self.joined_in)
        self.mark("logging")
        return event

    def _recorded(self, step: int, collectives: Collectives) -> RanksTimed | ScheduleTraced | None:
        return None
