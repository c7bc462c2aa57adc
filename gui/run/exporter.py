"""A run in one zip file, as ``footplate export`` writes it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, Signal

from engine.runs.folder import RunFolder
from gui.sources.child import ChildModule

LINE_LIMIT_BYTES = 1 << 20


class Exporter(ChildModule):
    """Exports one run at a time, in a process of its own, since looking at the machine takes some seconds.

    Signals: done(str) - where the zip file is; failed(str) - why there is none.
    """

    done = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__("footplate", "Exporting the run", LINE_LIMIT_BYTES, parent)
        self._target = Path()
        self._written = False

    def start(self, run: RunFolder, target: Path) -> None:
        """Writes `run` to `target`, in place of what may be there."""
        self._target, self._written = target, False
        self._start(["export", run.run_id, "--zip", str(target), "--replace"])

    def _take(self, line: bytes) -> None:
        self._written = self._written or line.startswith(b"Wrote ")

    def _answer(self) -> bool:
        if self._written:
            self.done.emit(str(self._target))
        return self._written
