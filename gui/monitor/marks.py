"""Where runs started and ended on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.devices import is_gpu
from engine.contract.runs import RunFolder, State, list_runs
from gui.background import Background, in_background
from gui.runs.model import title

READ_EVERY_MS = 3000
SHOWN_S = 86_400.0
"""Runs that ended longer ago are no marks: the graphs reach no further back."""

_GOING_ON = ("starting", "running")


@dataclass(frozen=True)
class RunMark:
    """One run: `start` and `end` in seconds since the epoch, `end` None while it goes on; `devices` as in its job.

    `supervisor` is the pid of the process that runs it, None where none does.
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


class RunMarks(QObject):
    """The runs of the last 24 hours and those going on, oldest first; read on a thread every few seconds.

    Signals: changed() - `marks` are others.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.marks: tuple[RunMark, ...] = ()
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

    def _read(self, marks: tuple[RunMark, ...]) -> None:
        self._reading = None
        if marks != self.marks:
            self.marks = marks
            self.changed.emit()
        if self._again:
            self._again = False
            self.refresh()

    def _could_not_read(self, error: Exception) -> None:
        self._read(())  # a home that cannot be read has no runs to mark


class _Reader:
    """Reads marks; what cannot change any more is read once."""

    def __init__(self) -> None:
        self._known: dict[Path, RunMark] = {}

    def read(self) -> tuple[RunMark, ...]:
        """All marks, oldest first. Raises OSError where the runs' folder cannot be read."""
        runs = list_runs()
        present = {run.path for run in runs}
        self._known = {path: mark for path, mark in self._known.items() if path in present}
        for run in runs:
            known = self._known.get(run.path)
            mark = _new_mark(run) if known is None else _looked_at_again(run, known) if known.going_on else known
            if mark is not None:
                self._known[run.path] = mark
        oldest = time.time() - SHOWN_S
        shown = (mark for mark in self._known.values() if mark.end is None or mark.end >= oldest)
        return tuple(sorted(shown, key=lambda mark: mark.start))


def _new_mark(run: RunFolder) -> RunMark | None:
    """None for a run that cannot be read."""
    try:
        summary = run.summary()
    except OSError:
        return None
    if summary is None:
        return None
    devices = tuple(dict.fromkeys(summary.devices))
    mark = RunMark(summary.run_id, title(summary), devices, summary.state, summary.started)
    return _looked_at_again(run, mark)


def _looked_at_again(run: RunFolder, mark: RunMark) -> RunMark:
    """`mark` with what may have changed since: whether the run goes on, and who runs it."""
    state = run.state()
    if state in _GOING_ON:
        supervisor = run.supervisor()
        return replace(mark, state=state, supervisor=supervisor.pid if supervisor is not None else None)
    last = run.last_event()
    return replace(mark, state=state, end=last.time if last is not None else mark.start, supervisor=None)
