"""Measuring a model and finding its cuts, in a process of its own (``python -m engine.advisor.planning``)."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.contract.cut import Cut
from engine.contract.job import Job
from engine.contract.planning import PLANNING, PlanningDone, PlanningProgress
from engine.contract.problems import Problem
from gui.sources.child import ChildModule

LINE_LIMIT_BYTES = 16 << 20


class Planner(ChildModule):
    """Measures one job at a time; a new one ends the last.

    Signals: progress(float, str) - the share done and what is being done; done(object) - the Cut;
    refused(object) - the Problem for which the model cannot be cut so.
    """

    progress = Signal(float, str)
    done = Signal(object)
    refused = Signal(object)

    def __init__(self, parent: QObject | None = None, module: str = "engine.advisor.planning") -> None:
        super().__init__(module, "Measuring the model", LINE_LIMIT_BYTES, parent)
        self._found: Cut | Problem | None = None

    def start(self, job: Job) -> None:
        """Begins to measure the model of `job` on its devices; the answer comes as a signal."""
        self._found = None
        self._start([], msgspec.json.encode(job))
        self.progress.emit(0.0, "Starting to measure")

    def _take(self, line: bytes) -> None:
        message = PLANNING.decode(line)
        if isinstance(message, PlanningProgress):
            self.progress.emit(message.fraction, message.what)
        else:
            self._found = message.cut if isinstance(message, PlanningDone) else message.problem

    def _answer(self) -> bool:
        if isinstance(self._found, Cut):
            self.done.emit(self._found)
        elif self._found is not None:
            self.refused.emit(self._found)
        return self._found is not None
