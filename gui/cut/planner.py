"""Child process that measures a model and finds its cuts (``python -m engine.advisor.planning``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from PySide6.QtCore import QObject

from engine.contract.cut import PLANNING, PlanningDone, PlanningFailed, PlanningProgress
from engine.contract.job import Job
from gui.sources.json_lines import Answer, JsonLinesProcess
from gui.translation import tr

if TYPE_CHECKING:
    from engine.contract.cut import PlanningMessage

_LINE_LIMIT_BYTES = 16 << 20


class Planner(JsonLinesProcess):
    """Measurement of one job's model at a time.

    Its progress is a PlanningProgress, its result a Cut, and its refusal the Problem that prevents a cut.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(
            "engine.advisor.planning",
            tr("Measuring the model"),
            PLANNING.decode,
            _answer_in,
            parent,
            line_limit_bytes=_LINE_LIMIT_BYTES,
        )

    def start(self, job: Job) -> None:
        """Measure the model of `job` on its devices."""
        self.run(stdin=msgspec.json.encode(job), first=PlanningProgress(0.0, tr("Starting to measure")))


def _answer_in(message: PlanningMessage) -> Answer | None:
    match message:
        case PlanningDone(cut=cut):
            return Answer(cut)
        case PlanningFailed(problem=problem):
            return Answer(problem, refused=True)
    return None
