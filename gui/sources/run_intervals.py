"""When runs were at work on this machine, and on what."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.devices import is_gpu
from engine.contract.events import RunFinished
from engine.runs.folder import ENDED, RunFolder, State, list_runs
from gui.sources.background import Background, expected_of_a_disk, in_background, why
from gui.sources.executions import executions
from gui.titles import title

READ_EVERY_MS = 3000
SHOWN_S = 86_400.0
"""Runs that ended longer ago are no marks: the graphs reach no further back."""

_SILENT = -1
"""The stamp of a run that goes on and has not said so yet: it is read again."""


@dataclass(frozen=True)
class RunInterval:
    """One execution of a run: from `start`, when it came to its devices, to `end`, in seconds since the epoch; `end` is
    None while it goes on. A run that was paused or stopped and goes on has several, each with a `state`.

    `devices` are those that it holds, or held; one that waits in line holds none. `supervisor` is the pid of the process
    that runs it, None where none does.
    """

    run_id: str
    name: str
    devices: tuple[str, ...]
    state: State
    start: float
    end: float | None = None
    supervisor: int | None = None

    @property
    def going_on(self) -> bool:
        return self.end is None


class RunIntervals(QObject):
    """The executions of the last 24 hours and those going on, oldest first; read on a thread every few seconds.

    `unread` says of runs whose files could not be understood, by their ids, why; what was known of them before stands.

    Signals: changed() - `marks` or `unread` are others.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.marks: tuple[RunInterval, ...] = ()
        self.unread: dict[str, str] = {}
        self._reader = _Reader()
        self._reading: Background | None = None
        self._again = False
        self._timer = QTimer(self, interval=READ_EVERY_MS)
        self._timer.timeout.connect(self.refresh)

    def start(self) -> None:
        self._timer.start()
        self.refresh()

    def stop(self) -> None:
        """Ends the reading; returns once it has ended."""
        self._timer.stop()
        self._again = False
        if self._reading is not None:
            self._reading.finish()

    def refresh(self) -> None:
        """Reads the runs now; where that is going on already, once more afterwards."""
        if self._reading is not None:
            self._again = True
            return
        self._reading = in_background(self._reader.read, self, self._read, self._could_not_read)

    def holding(self) -> dict[str, str]:
        """The GPUs of this machine that runs going on hold: UUIDs, and the name of the run."""
        return {device: mark.name for mark in self.marks if mark.going_on for device in mark.devices if is_gpu(device)}

    def supervisors(self) -> dict[int, str]:
        """The processes that run the runs going on: pids, and the name of the run. Workers descend from them."""
        return {mark.supervisor: mark.name for mark in self.marks if mark.going_on and mark.supervisor is not None}

    def _read(self, marks: tuple[RunInterval, ...]) -> None:
        self._reading = None
        if (marks, self._reader.unread) != (self.marks, self.unread):
            self.marks, self.unread = marks, self._reader.unread
            self.changed.emit()
        if self._again:
            self._again = False
            self.refresh()

    def _could_not_read(self, error: Exception) -> None:
        self._read(())  # a home that cannot be read has no runs to mark
        expected_of_a_disk(error)


@dataclass(frozen=True)
class _Known:
    """What was read of a run, and of when its folder was: a supervisor's file, a job or notes that are put into it mean that
    somebody goes on with the run, or names it otherwise."""

    stamp: int
    marks: tuple[RunInterval, ...]

    def still_so(self, run: RunFolder) -> bool:
        newest = self.marks[-1]
        return self.stamp == _stamp(run) and (not newest.going_on or newest.state == run.state())


class _Reader:
    """Reads marks; what cannot change any more is read once."""

    def __init__(self) -> None:
        self._known: dict[Path, _Known] = {}
        self.unread: dict[str, str] = {}

    def read(self) -> tuple[RunInterval, ...]:
        """All marks, oldest first. Raises OSError where the runs' folder cannot be read."""
        runs = list_runs()
        present = {run.path for run in runs}
        self._known = {path: known for path, known in self._known.items() if path in present}
        unread: dict[str, str] = {}
        for run in runs:
            known = self._known.get(run.path)
            try:
                if known is None or not known.still_so(run):
                    known = _marks_of(run)
            except Exception as error:  # whatever one run's files hold, the others are to be seen
                unread[run.run_id] = why(error)
            if known is not None:
                self._known[run.path] = known
        self.unread = unread
        oldest = time.time() - SHOWN_S
        all_of_them = (mark for known in self._known.values() for mark in known.marks)
        shown = (mark for mark in all_of_them if mark.end is None or mark.end >= oldest)
        return tuple(sorted(shown, key=lambda mark: mark.start))


def _stamp(run: RunFolder) -> int:
    try:
        return run.path.stat().st_mtime_ns
    except OSError:
        return 0


def _marks_of(run: RunFolder) -> _Known | None:
    """None for a run that is gone or not ours to read. Raises OSError, and whatever damaged files may lead to."""
    stamp, state, last = _stamp(run), run.state(), run.last_event()
    try:
        summary = run.summary()
        told = executions(run)
    except (FileNotFoundError, PermissionError):
        return None
    if state not in ENDED and isinstance(last, RunFinished):
        stamp, state = _SILENT, last.outcome
    before = [
        RunInterval(summary.run_id, title(summary), each.devices, each.state, each.start, each.end)
        for each in told
        if each.state is not None
    ]
    devices = told[-1].devices if told else tuple(dict.fromkeys(summary.devices))
    start = told[-1].start if told else summary.started
    newest = RunInterval(summary.run_id, title(summary), devices, state, start)
    if state in ENDED:
        newest = replace(newest, end=max(last.time, start) if last is not None else start)
    else:
        supervisor = run.supervisor()
        newest = replace(newest, supervisor=supervisor.pid if supervisor is not None else None)
    return _Known(stamp, (*before, replace(newest, devices=()) if state == "waiting" else newest))
