"""A finder in a process of its own (``python -m engine.advisor``)."""

from __future__ import annotations

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.contract.finders import FINDING, BatchFound, Finder, FinderFailed, FinderOrder, FinderProgress, RateFound
from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.sources.child import ChildModule

LINE_LIMIT_BYTES = 1 << 20


class FinderChild(ChildModule):
    """Tries one job at a time; a new one ends the last.

    Signals: progress(object) - a FinderProgress; done(object) - what was found; refused(object) - the Problem for which
    nothing could be.
    """

    progress = Signal(object)
    done = Signal(object)
    refused = Signal(object)
    cleans_up = True

    def __init__(self, finder: Finder, parent: QObject | None = None, module: str = "engine.advisor") -> None:
        super().__init__(module, "Trying the job", LINE_LIMIT_BYTES, parent)
        self._finder: Finder = finder
        self._found: RateFound | BatchFound | Problem | None = None

    def start(self, job: Job) -> None:
        """Begins to try `job` on its devices; the answer comes as a signal."""
        self._found = None
        self._start([], msgspec.json.encode(FinderOrder(self._finder, job)))
        self.progress.emit(FinderProgress(0.0, "Starting"))

    def _take(self, line: bytes) -> None:
        message = FINDING.decode(line)
        if isinstance(message, FinderProgress):
            self.progress.emit(message)
        else:
            self._found = message.problem if isinstance(message, FinderFailed) else message

    def _answer(self) -> bool:
        if isinstance(self._found, Problem):
            self.refused.emit(self._found)
        elif self._found is not None:
            self.done.emit(self._found)
        return self._found is not None
