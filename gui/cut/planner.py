"""Child process that measures a model and finds its cuts (``python -m engine.advisor.planning``)."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject

from engine.contract.cut import PLANNING
from engine.contract.job import Job
from engine.contract.messages import Progress
from gui.sources.json_lines import JsonLinesProcess
from gui.translation import tr

_LINE_LIMIT_BYTES = 16 << 20


class Planner(JsonLinesProcess):
    """Measurement of one job's model at a time.

    Its progress is a Progress and its result a Cut.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(
            "engine.advisor.planning",
            tr("Measuring the model"),
            PLANNING.decode,
            parent,
            line_limit_bytes=_LINE_LIMIT_BYTES,
        )

    def start(self, job: Job) -> None:
        """Measure the model of `job` on its devices."""
        self.run(stdin=msgspec.json.encode(job), first=Progress(0.0, tr("Starting to measure")))
