"""Reading the list of runs away from the window's thread."""

from __future__ import annotations

import threading
import time

from PySide6.QtCore import QObject, Signal

from engine.runs.folder import RunSummary
from engine.runs.index import RunIndex
from gui.sources.background import emitted, expected_of_a_disk, why

_TELL_AFTER_S = 0.1
"""What has been found by then is shown at once; each wait after it is twice as long, since every telling sorts anew."""


class RunList(QObject):
    """Reads the runs on a thread of its own, through the index of what cannot change any more.

    Signals:
        found(list[RunSummary]): some of the runs, newest first, as they are read.
        complete(list[str], dict[str, str]): the ids of all runs that could be read, once all have been; and why others
            could not be, by their ids.
        failed(str): the runs' folder cannot be read; why.
    """

    found = Signal(list)
    complete = Signal(list, dict)
    failed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._index = RunIndex()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._again = False
        self.complete.connect(self._completed)
        self.failed.connect(self._completed)

    def refresh(self) -> None:
        """Reads all runs; where that is going on already, once more afterwards."""
        if self._thread is not None:
            self._again = True
            return
        self._ended.clear()
        self._thread = threading.Thread(target=self._read, name="runs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the reading; returns once it has ended."""
        self._ended.set()
        self._again = False
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _completed(self) -> None:
        self._thread = None
        if self._again:
            self._again = False
            self.refresh()

    def _read(self) -> None:
        try:
            self._tell_all()
        except Exception as error:
            emitted(self.failed, why(error))
            expected_of_a_disk(error)

    def _tell_all(self) -> None:
        batch: list[RunSummary] = []
        run_ids = []
        unread: dict[str, str] = {}
        told, wait_s = time.monotonic(), _TELL_AFTER_S
        for run in self._index.summaries(lambda run_id, error: unread.update({run_id: why(error)})):
            if self._ended.is_set():
                return
            batch.append(run)
            run_ids.append(run.run_id)
            if time.monotonic() - told > wait_s:
                if not emitted(self.found, batch):
                    return
                batch, told, wait_s = [], time.monotonic(), 2 * wait_s
        emitted(self.found, batch)
        emitted(self.complete, run_ids, unread)
