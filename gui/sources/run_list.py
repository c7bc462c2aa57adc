"""Polling of the runs folder and of SLURM on worker threads, for all parts of the window."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal, SignalInstance

from engine.contract.job import Job
from engine.runs.folder import ENDED, RunFolder, RunSummary
from engine.runs.index import RunIndex
from engine.runs.slurm import POLL_S, refresh_slurm_states
from engine.system import paths
from gui.sources.active_runs import QueuedRun, read_device_queues
from gui.sources.background import CLOSE_S, SingleFlight, describe_error, emit_safely, ignore_os_error
from gui.sources.run_intervals import IntervalReader, RunInterval

READ_EVERY_MS = 3000

_FIRST_BATCH_S = 0.1
"""Seconds until the first batch of runs is reported. Later intervals double, because the table sorts every batch."""


@dataclass(frozen=True)
class RunListing:
    """All runs on disk, newest first.

    Attributes:
        intervals: Recent executions of the runs.
        unread: Errors of unreadable runs, by run id.
        active_jobs: Jobs of running and queued runs, by run id.
        device_queues: Runs that use or wait for each device; see `read_device_queues`.
    """

    runs: tuple[RunSummary, ...]
    intervals: tuple[RunInterval, ...]
    unread: Mapping[str, str]
    active_jobs: Mapping[str, Job]
    device_queues: Mapping[str, tuple[QueuedRun, ...]]

    def count(self) -> tuple[int, int]:
        """Return the number of running and of queued runs."""
        states = [run.state for run in self.runs if run.state not in ENDED]
        waiting = states.count("waiting")
        return len(states) - waiting, waiting

    def run_to_open(self, last: str) -> RunFolder | None:
        """Return the newest active run. If none is active, return the run in the folder `last`, or None if it is gone."""
        last_run = next((run for run in self.runs if run.folder == last), None)
        run = next((run for run in self.runs if run.state not in ENDED), last_run)
        return RunFolder(run.folder) if run is not None else None


class RunList(QObject):
    """List of all runs, which is reloaded every few seconds, even after errors.

    Attributes:
        known_ids: Ids of the runs that have been found.

    Signals:
        found(list[RunSummary]): new and changed runs, newest first, while they are being read.
        complete(RunListing): all runs, after each read.
        failed(str): the reason why the runs folder can't be read.
    """

    found = Signal(list)
    complete = Signal(object)
    failed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.known_ids: frozenset[str] = frozenset()
        self.found.connect(self._on_found)
        self._reader = _Reader(self.found)
        self._flight = SingleFlight(self, lambda: self._reader.read, self._on_read, self._on_failed)
        self._timer = QTimer(self, interval=READ_EVERY_MS)
        self._timer.timeout.connect(self.refresh)

    @property
    def reading(self) -> bool:
        return self._flight.running

    def start(self) -> None:
        """Read the runs now, and then at regular intervals."""
        self._timer.start()
        self.refresh()

    def set_interval(self, seconds: float) -> None:
        """Set the time between reads."""
        self._timer.setInterval(round(1000 * seconds))

    def change_folder(self) -> None:
        """Read the runs in the new runs folder, which the user has just chosen, instead of the previous one."""
        self._reader.cancelled.set()
        self._reader = _Reader(self.found)  # the previous one remains cancelled, and caches runs of the previous folder
        self._flight.abandon()  # so that the new read starts immediately
        self.refresh()

    def refresh(self) -> None:
        """Read all runs. If a read is in progress, schedule another one."""
        self._flight.request()

    def close(self) -> None:
        """Stop polling, and wait for the current read unless the disk doesn't respond."""
        self._timer.stop()
        self._reader.cancelled.set()
        self._flight.finish(CLOSE_S)
        self._reader = _Reader(self.found)  # for another `start`, since the previous one remains cancelled

    def _on_found(self, runs: list[RunSummary]) -> None:
        """Add the ids of new runs to `known_ids`, before their summaries are complete. `_on_read` removes deleted runs."""
        self.known_ids |= {run.run_id for run in runs}

    def _on_read(self, read: RunListing | None) -> None:
        """Emit the complete list, unless the read was cancelled."""
        if read is not None and not self._reader.cancelled.is_set():
            self.known_ids = frozenset(run.run_id for run in read.runs)
            self.complete.emit(read)

    def _on_failed(self, error: Exception) -> None:
        """Report an error, unless the read was cancelled. Errors other than OSError are also raised."""
        if not self._reader.cancelled.is_set():
            self.failed.emit(describe_error(error))
        ignore_os_error(error)


class _Reader:
    """Reader of a runs folder, with a cache of runs that can't change any more.

    Attributes:
        cancelled: Event that cancels the current read.
    """

    def __init__(self, found: SignalInstance) -> None:
        """Create a reader that emits the signal `found` with the new and changed runs while it reads."""
        self.cancelled = threading.Event()
        self._found = found
        self._index = RunIndex()
        self._intervals = IntervalReader()
        self._previous_runs: dict[str, RunSummary] = {}
        self._jobs: dict[str, Job | None] = {}

    def read(self) -> RunListing | None:
        """Read all runs. Return None if cancelled. Raises OSError if the folder is unreadable or has vanished.

        New and changed runs are emitted in batches, at intervals that double.
        """
        folder = paths.runs_folder()
        if self._previous_runs and not folder.exists():  # a vanished folder would look like one without runs
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        runs: dict[str, RunSummary] = {}
        unread: dict[str, str] = {}
        batch: list[RunSummary] = []
        emitted_at, delay_s = time.monotonic(), _FIRST_BATCH_S
        for run in self._index.summaries(lambda run_id, error: unread.update({run_id: describe_error(error)})):
            if self.cancelled.is_set():
                return None
            runs[run.run_id] = run
            if run != self._previous_runs.get(run.run_id):
                batch.append(run)
            if batch and time.monotonic() - emitted_at > delay_s:
                if not emit_safely(self._found, batch):
                    return None
                batch, emitted_at, delay_s = [], time.monotonic(), 2 * delay_s
        emit_safely(self._found, batch)
        self._previous_runs = runs
        intervals = self._intervals.read(runs.values(), unread)
        self._jobs = {
            run.run_id: self._jobs.get(run.run_id) or RunFolder(run.folder).job()
            for run in runs.values()
            if run.state not in ENDED
        }
        jobs = {run_id: job for run_id, job in self._jobs.items() if job is not None}
        return RunListing(tuple(runs.values()), intervals, unread, jobs, read_device_queues())


class SlurmWatch(QObject):
    """Poller for the states of runs under SLURM, which works only while such runs are active.

    Signals:
        changed(): the state in a run's folder has been updated.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._runs: list[RunFolder] = []
        self._next_at = 0.0
        self._flight = SingleFlight(self, lambda: partial(refresh_slurm_states, self._runs), self._on_polled)

    def poll(self, read: RunListing) -> None:
        """Query SLURM for the active runs in `read`, at most every `POLL_S` seconds."""
        self._runs = [RunFolder(run.folder) for run in read.runs if run.slurm and run.state not in ENDED]
        if self._runs and not self._flight.running and time.monotonic() > self._next_at:
            self._next_at = time.monotonic() + POLL_S
            self._flight.request()

    def close(self) -> None:
        """Stop polling, and wait for the current read."""
        self._next_at = float("inf")
        self._flight.finish()

    def _on_polled(self, has_changed: bool) -> None:
        """Emit `changed` if the state of any run has changed."""
        if has_changed:
            self.changed.emit()
