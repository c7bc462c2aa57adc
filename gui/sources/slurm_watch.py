"""How the runs in SLURM stand: asked now and then, while there are any."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Signal

from engine.runs.folder import ENDED, RunFolder
from engine.runs.slurm import LOOK_S, look
from gui.sources.background import Background, expected_of_a_disk, in_background
from gui.sources.run_list import RunsRead


class SlurmWatch(QObject):
    """Signals: changed() - a run's folder tells of another state."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._asking: Background | None = None
        self._ask_at = 0.0

    def see(self, read: RunsRead) -> None:
        """Asks for those of the runs that go on in SLURM, unless that has just been done."""
        runs = [RunFolder(run.folder) for run in read.runs if run.slurm and run.state not in ENDED]
        if runs and self._asking is None and time.monotonic() > self._ask_at:
            self._ask_at = time.monotonic() + LOOK_S
            self._asking = in_background(lambda: look(runs), self, self._seen, self._failed)

    def close(self) -> None:
        """Returns once nobody asks any more."""
        self._ask_at = float("inf")
        if self._asking is not None:
            self._asking.finish()

    def _seen(self, changed: bool) -> None:
        self._asking = None
        if changed:
            self.changed.emit()

    def _failed(self, error: Exception) -> None:
        self._asking = None
        expected_of_a_disk(error)
