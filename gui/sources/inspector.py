"""Looking through a dataset folder, in a process of its own (``python -m engine.data``)."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import INSPECTION, DatasetReport, InspectionDone, inspector_options
from engine.contract.job import Job
from gui.sources.child import ChildModule

REPORT_LIMIT_BYTES = 64 << 20


class Inspector(ChildModule):
    """Looks through one folder at a time; a new one ends the last.

    Signals: progress(int, int) - files done and in all, 0 while unknown; done(object) - the DatasetReport.

    Attributes: folder - the folder asked for last, "" where none is.
    """

    progress = Signal(int, int)
    done = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__("engine.data", "Inspecting the folder", REPORT_LIMIT_BYTES, parent)
        self.folder = ""
        self._report: DatasetReport | None = None

    def start(self, job: Job) -> None:
        """Begins to look through the folder of `job` for its task; the answer comes as a signal."""
        self.folder = job.dataset
        self._report = None
        self._start([job.dataset, *inspector_options(job, load_catalogue())])
        self.progress.emit(0, 0)

    def _take(self, line: bytes) -> None:
        message = INSPECTION.decode(line)
        if isinstance(message, InspectionDone):
            self._report = message.report
        else:
            self.progress.emit(message.done, message.total)

    def _answer(self) -> bool:
        if self._report is not None:
            self.done.emit(self._report)
        return self._report is not None
