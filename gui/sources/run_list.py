"""The one look at the runs folder for the whole window: every few seconds, away from the window's thread."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from PySide6.QtCore import QObject, QTimer, Signal

from engine.runs.folder import ENDED, RunFolder, RunSummary
from engine.runs.index import RunIndex
from engine.system import paths
from gui.sources.active_runs import runs_ahead
from gui.sources.background import Background, emitted, expected_of_a_disk, in_background, why
from gui.sources.run_intervals import IntervalReader, RunInterval

READ_EVERY_MS = 3000

_TELL_AFTER_S = 0.1
"""What has been found by then is shown at once; each wait after it is twice as long, since every telling sorts anew."""


@dataclass(frozen=True)
class RunsRead:
    """All runs, newest first, and when those of late were at work; `unread` says why others could not be read, by their
    ids. `ahead` is who has each device or waits for it, as `runs_ahead` gives it.
    """

    runs: tuple[RunSummary, ...]
    intervals: tuple[RunInterval, ...]
    unread: Mapping[str, str]
    ahead: Mapping[str, tuple[str, ...]]

    def count(self) -> tuple[int, int]:
        """How many runs are at work, and how many wait in line for their devices."""
        going_on = [run.state for run in self.runs if run.state not in ENDED]
        waiting = going_on.count("waiting")
        return len(going_on) - waiting, waiting

    def to_show(self) -> RunFolder | None:
        """The newest run that goes on, else the newest of all."""
        run = next((run for run in self.runs if run.state not in ENDED), next(iter(self.runs), None))
        return RunFolder(run.folder) if run is not None else None


class RunList(QObject):
    """Reads the runs through the index of what cannot change any more. Whatever goes wrong, it looks again the next
    time.

    Signals:
        found(list[RunSummary]): runs that are new or others than before, newest first, as they are read.
        complete(RunsRead): all of them, once all have been read.
        failed(str): the runs folder cannot be read; why. What was told before is the last that is known.
    """

    found = Signal(list)
    complete = Signal(object)
    failed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._index = RunIndex()
        self._intervals = IntervalReader()
        self._known: dict[str, RunSummary] = {}
        self._reading: Background | None = None
        self._ended = threading.Event()
        self._again = False
        self._timer = QTimer(self, interval=READ_EVERY_MS)
        self._timer.timeout.connect(self.refresh)

    def start(self) -> None:
        """Reads the runs now, and from now on by itself."""
        self._timer.start()
        self.refresh()

    def set_interval(self, seconds: float) -> None:
        """Reads the runs so often from now on."""
        self._timer.setInterval(round(1000 * seconds))

    def read_elsewhere(self) -> None:
        """Reads the runs of another folder from now on, since the user has chosen one."""
        if self._reading is not None:
            self._reading.finish()
        self._index = RunIndex()
        self._known = {}
        self.refresh()

    def refresh(self) -> None:
        """Reads all runs; where that is going on already, once more afterwards."""
        if self._reading is not None:
            self._again = True
            return
        self._ended.clear()
        self._reading = in_background(self._read, self, self._done, self._failed)

    def close(self) -> None:
        """Ends the reading; returns once it has ended."""
        self._timer.stop()
        self._ended.set()
        self._again = False
        if self._reading is not None:
            self._reading.finish()

    def _done(self, read: RunsRead | None) -> None:
        self._reading = None
        if read is not None and not self._ended.is_set():
            self.complete.emit(read)
        if self._again:
            self._again = False
            self.refresh()

    def _failed(self, error: Exception) -> None:
        if not self._ended.is_set():
            self.failed.emit(why(error))
        self._done(None)
        expected_of_a_disk(error)

    def _read(self) -> RunsRead | None:
        """None where it was ended before its end. Raises OSError where the folder cannot be read, or is there no
        more.
        """
        folder = paths.runs_folder()
        if self._known and not folder.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        runs: dict[str, RunSummary] = {}
        unread: dict[str, str] = {}
        batch: list[RunSummary] = []
        told, wait_s = time.monotonic(), _TELL_AFTER_S
        for run in self._index.summaries(lambda run_id, error: unread.update({run_id: why(error)})):
            if self._ended.is_set():
                return None
            runs[run.run_id] = run
            if run != self._known.get(run.run_id):
                batch.append(run)
            if batch and time.monotonic() - told > wait_s:
                if not emitted(self.found, batch):
                    return None
                batch, told, wait_s = [], time.monotonic(), 2 * wait_s
        emitted(self.found, batch)
        self._known = runs
        intervals = self._intervals.read(runs.values(), unread)
        return RunsRead(tuple(runs.values()), intervals, unread, runs_ahead())
