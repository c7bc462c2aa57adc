"""Child process that tries a job: a finder (``python -m engine.advisor``) or the advisor."""

from __future__ import annotations

from typing import Any

import msgspec
from PySide6.QtCore import QObject

from engine.contract.advice import ADVISING, AdviceOrder, AdviceProgress, AdviceRefused
from engine.contract.finders import FINDING, FinderFailed, FinderOrder, FinderProgress
from gui.sources.json_lines import Answer, JsonLinesProcess


class FinderChild(JsonLinesProcess):
    """Trial of one job at a time.

    Its progress is a FinderProgress or AdviceProgress, and its refusal a tuple of Problems.
    """

    def __init__(self, parent: QObject | None = None, *, advises: bool = False) -> None:
        """Prepare the advisor, which takes an AdviceOrder, or a finder, which takes a FinderOrder."""
        module = "engine.advisor.advice" if advises else "engine.advisor"
        decode = ADVISING.decode if advises else FINDING.decode
        super().__init__(module, "Trying the job", decode, _answer_in, parent, cleans_up=True)

    def start(self, order: FinderOrder | AdviceOrder) -> None:
        """Try the job of `order` on its devices."""
        self.run(stdin=msgspec.json.encode(order), first=FinderProgress(0.0, "Starting"))


def _answer_in(message: Any) -> Answer | None:
    match message:
        case FinderProgress() | AdviceProgress():
            return None
        case FinderFailed(problem=problem):
            return Answer((problem,), refused=True)
        case AdviceRefused(problems=problems):
            return Answer(problems, refused=True)
    return Answer(message)
