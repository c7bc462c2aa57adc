"""Polling of SLURM for the states of the runs submitted to it."""

from __future__ import annotations

import time
from functools import partial

from PySide6.QtCore import QObject, Signal

from engine.runs.folder import ENDED, RunFolder
from engine.runs.slurm import POLL_S, refresh
from gui.sources.background import SingleFlight
from gui.sources.run_list import RunsRead


class SlurmWatch(QObject):
    """Poller of SLURM while runs are active there.

    Signals:
        changed(): the state in a run's folder was updated.
    """

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._runs: list[RunFolder] = []
        self._next_at = 0.0
        self._flight = SingleFlight(self, lambda: partial(refresh, self._runs), self._on_polled)

    def poll(self, read: RunsRead) -> None:
        """Query SLURM for the active runs among `read`, at most every `POLL_S` seconds."""
        self._runs = [RunFolder(run.folder) for run in read.runs if run.slurm and run.state not in ENDED]
        if self._runs and not self._flight.running and time.monotonic() > self._next_at:
            self._next_at = time.monotonic() + POLL_S
            self._flight.request()

    def close(self) -> None:
        """Stop polling and wait for a running query."""
        self._next_at = float("inf")
        self._flight.finish()

    def _on_polled(self, changed: bool) -> None:
        if changed:
            self.changed.emit()
