"""What tries a job in a process of its own: a finder (``python -m engine.advisor``), or the advisor."""

from __future__ import annotations

from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.contract.advice import ADVISING, AdviceOrder, AdviceProgress, AdviceRefused
from engine.contract.finders import FINDING, FinderFailed, FinderOrder, FinderProgress
from engine.contract.problems import Problem
from gui.sources.child import ChildModule

LINE_LIMIT_BYTES = 1 << 20


class FinderChild(ChildModule):
    """Tries one job at a time; a new one ends the last.

    Signals: progress(object) - a FinderProgress or AdviceProgress; done(object) - what was found; refused(object) - the
    Problems (a tuple) for which nothing could be.
    """

    progress = Signal(object)
    done = Signal(object)
    refused = Signal(object)
    cleans_up = True

    def __init__(self, parent: QObject | None = None, *, advises: bool = False) -> None:
        """With `advises` it takes an AdviceOrder, else a FinderOrder."""
        module = "engine.advisor.advice" if advises else "engine.advisor"
        super().__init__(module, "Trying the job", LINE_LIMIT_BYTES, parent)
        self._decoder: msgspec.json.Decoder[Any] = ADVISING if advises else FINDING
        self._found: object = None
        self._problems: tuple[Problem, ...] = ()

    def start(self, order: FinderOrder | AdviceOrder) -> None:
        """Begins to try the job of `order` on its devices; the answer comes as a signal."""
        self._found, self._problems = None, ()
        self._start([], msgspec.json.encode(order))
        self.progress.emit(FinderProgress(0.0, "Starting"))

    def stop(self) -> None:
        """Asks the process to answer with what it knows by now."""
        if self._process is not None:
            self._end(self._process)

    def _take(self, line: bytes) -> None:
        message = self._decoder.decode(line)
        if isinstance(message, FinderProgress | AdviceProgress):
            self.progress.emit(message)
        elif isinstance(message, FinderFailed):
            self._problems = (message.problem,)
        elif isinstance(message, AdviceRefused):
            self._problems = message.problems
        else:
            self._found = message

    def _answer(self) -> bool:
        if self._problems:
            self.refused.emit(self._problems)
        elif self._found is not None:
            self.done.emit(self._found)
        return bool(self._problems) or self._found is not None
