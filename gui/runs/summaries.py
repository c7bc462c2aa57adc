"""Reading the list of runs away from the window's thread, and none twice that cannot change any more."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from engine.contract.runs import RunFolder, RunSummary, list_runs

_BATCH = 50
_Stamp = tuple[int, int]


class Summaries(QObject):
    """Reads runs on a thread of its own and keeps what cannot change any more.

    Signals:
        found(list[RunSummary]): some of the runs, newest first, as they are read.
        complete(list[str]): the ids of all runs there are, once all have been read.
    """

    found = Signal(list)
    complete = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._kept: dict[Path, tuple[_Stamp, RunSummary]] = {}
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._again = False
        self.complete.connect(self._completed)

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
            runs = list_runs()
            batch: list[RunSummary] = []
            for summary in self._summaries(runs):
                batch.append(summary)
                if len(batch) >= _BATCH:
                    self.found.emit(batch)
                    batch = []
            if self._ended.is_set():
                return
            self.found.emit(batch)
            self.complete.emit([run.run_id for run in runs])
        except RuntimeError:
            return  # the window, and this object with it, is gone already

    def _summaries(self, runs: Iterable[RunFolder]) -> Iterable[RunSummary]:
        for run in runs:
            if self._ended.is_set():
                return
            try:
                summary = self._summary(run)
            except OSError:
                continue  # removed, or not ours to read
            if summary is not None:
                yield summary

    def _summary(self, run: RunFolder) -> RunSummary | None:
        stamp = _stamp(run)
        kept = self._kept.get(run.path)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        summary = run.summary()
        if summary is not None and summary.state in ("completed", "stopped", "failed"):
            self._kept[run.path] = (stamp, summary)
        return summary


def _stamp(run: RunFolder) -> _Stamp:
    try:
        info = run.events_file.stat()
    except OSError:
        return (0, 0)
    return (info.st_mtime_ns, info.st_size)
