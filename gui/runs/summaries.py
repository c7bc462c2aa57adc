"""Reading the list of runs without reading every log from end to end each time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.contract.events import EVENT, RunFinished, RunStarted, Validation
from engine.contract.runs import RunFolder, RunSummary, State, list_runs

_BATCH = 50
_TAIL_BYTES = 1 << 22
_VALIDATION = b'{"type":"validation"'
"""How a line of that event begins: the encoder writes the tag first."""
_Stamp = tuple[int, int]


def summarize(run: RunFolder) -> RunSummary | None:
    """`run.summary()`, from the first and the last events alone: logs may be long, and the list looks at all of them.

    The measures of a run that has not finished are those of its last validation.
    """
    job = run.job()
    if job is None:
        return None
    first, last = _first_event(run), run.last_event()
    finished = last if isinstance(last, RunFinished) else None
    begun = first.time if first is not None else run.job_file.stat().st_mtime
    state: State = finished.outcome if finished is not None else run.state()
    over = state not in ("running", "starting")
    return RunSummary(
        run_id=run.run_id,
        folder=str(run.path),
        name=job.name,
        model=job.model,
        strategy=job.strategy,
        devices=job.devices,
        dataset=job.dataset,
        state=state,
        started=begun,
        seconds=(last.time if last is not None and over else time.time()) - begun,
        best=finished.best if finished is not None else _last_measures(run),
        cause=finished.cause if finished is not None else "",
    )


def _first_event(run: RunFolder) -> RunStarted | None:
    try:
        with run.events_file.open("rb") as stream:
            event = EVENT.decode(stream.readline())
    except (OSError, msgspec.DecodeError):
        return None
    return event if isinstance(event, RunStarted) else None


def _last_measures(run: RunFolder) -> dict[str, float]:
    try:
        with run.events_file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = stream.read()
    except OSError:
        return {}
    begin = tail.rfind(_VALIDATION)
    end = tail.find(b"\n", begin)
    if begin < 0 or end < 0:
        return {}
    try:
        event = EVENT.decode(tail[begin:end])
    except msgspec.DecodeError:
        return {}
    return event.measures if isinstance(event, Validation) else {}


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
        summary = summarize(run)
        if summary is not None and summary.state in ("completed", "stopped", "failed"):
            self._kept[run.path] = (stamp, summary)
        return summary


def _stamp(run: RunFolder) -> _Stamp:
    try:
        info = run.events_file.stat()
    except OSError:
        return (0, 0)
    return (info.st_mtime_ns, info.st_size)
