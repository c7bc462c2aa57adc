"""When runs were at work on this machine, and on what."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from engine.contract.devices import is_gpu
from engine.runs.folder import ENDED, RunFolder, RunSummary, State
from gui.sources.background import describe_error
from gui.sources.executions import executions
from gui.titles import run_title

SHOWN_S = 86_400.0
"""Runs that ended longer ago are no marks: the graphs reach no further back."""


@dataclass(frozen=True)
class RunInterval:
    """One execution of a run: from `start`, when it came to its devices, to `end`, in seconds since the epoch; `end` is
    None while it goes on. A run that was paused or stopped and goes on has several, each with a `state`.

    `devices` are those that it holds, or held; one that waits in line holds none. `supervisor` is the pid of the
    process that runs it, None where none does.
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
    """The executions of the last 24 hours and those going on, oldest first, as they were last read.

    `unread` says of runs whose files could not be understood, by their ids, why; what was known of them before stands.

    Signals: changed() - `marks` or `unread` are others.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.marks: tuple[RunInterval, ...] = ()
        self.unread: Mapping[str, str] = {}

    def show(self, marks: tuple[RunInterval, ...], unread: Mapping[str, str]) -> None:
        if (marks, unread) != (self.marks, self.unread):
            self.marks, self.unread = marks, unread
            self.changed.emit()

    def holding(self) -> dict[str, str]:
        """The GPUs that runs going on hold, those of other machines by "HOST:UUID": the name of the run."""
        return {device: mark.name for mark in self.marks if mark.going_on for device in mark.devices if is_gpu(device)}

    def supervisors(self) -> dict[int, str]:
        """The processes that run the runs going on: pids, and the name of the run. Workers descend from them."""
        return {mark.supervisor: mark.name for mark in self.marks if mark.going_on and mark.supervisor is not None}


class IntervalReader:
    """Reads the executions of runs; those of a run that has ended are read once, as long as its summary stays."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[RunSummary, tuple[RunInterval, ...]]] = {}

    def read(self, runs: Collection[RunSummary], unread: dict[str, str]) -> tuple[RunInterval, ...]:
        """Those to show of `runs`, oldest first, and what was known of the runs in `unread`, to which those are added
        whose executions cannot be understood.
        """
        known = {run_id: self._known[run_id] for run_id in unread if run_id in self._known}
        for run in runs:
            before = self._known.get(run.run_id)
            if before is not None and before[0] == run and run.state in ENDED:
                known[run.run_id] = before
                continue
            try:
                known[run.run_id] = run, _intervals_of(run)
            except (FileNotFoundError, PermissionError):
                continue  # gone, or not ours to read
            except Exception as error:  # whatever one run's files hold, the others are to be seen
                unread[run.run_id] = describe_error(error)
                if before is not None:
                    known[run.run_id] = before
        self._known = known
        oldest = time.time() - SHOWN_S
        every = (interval for _run, intervals in known.values() for interval in intervals)
        shown = (interval for interval in every if interval.end is None or interval.end >= oldest)
        return tuple(sorted(shown, key=lambda interval: interval.start))


def _intervals_of(summary: RunSummary) -> tuple[RunInterval, ...]:
    """Raises OSError, and whatever damaged files may lead to."""
    run, name = RunFolder(summary.folder), run_title(summary)
    if summary.state in ENDED and _silent_for_long(run):
        return ()
    last, told = run.last_event(), executions(run)
    before = [
        RunInterval(summary.run_id, name, each.devices, each.state, each.start, each.end)
        for each in told
        if each.state is not None
    ]
    devices = told[-1].devices if told else tuple(dict.fromkeys(summary.devices))
    start = told[-1].start if told else summary.started
    if summary.state in ENDED:
        end, supervisor = (max(last.time, start) if last is not None else start), None
    else:
        end, supervisor = None, run.supervisor()
    newest = RunInterval(
        run_id=summary.run_id,
        name=name,
        devices=() if summary.state == "waiting" else devices,
        state=summary.state,
        start=start,
        end=end,
        supervisor=supervisor.pid if supervisor is not None and not summary.slurm else None,  # else of another machine
    )
    return (*before, newest)


def _silent_for_long(run: RunFolder) -> bool:
    """Whether the run's log was last written so long ago that nothing of it is shown."""
    try:
        return run.events_file.stat().st_mtime < time.time() - SHOWN_S
    except FileNotFoundError:
        return False
