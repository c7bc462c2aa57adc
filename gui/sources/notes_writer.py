"""Writer that stores notes in run folders, one at a time on a worker thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.runs.folder import RunSummary
from engine.runs.notes import RunNotes, change_notes
from gui.sources.background import SingleFlight
from gui.translation import tr


class NotesWriter(QObject):
    """Writer that stores the notes about runs, in the order of the changes.

    Signals:
        written(RunSummary): the notes of this run have been stored.
        failed(str): a message about notes that could not be stored.
    """

    written = Signal(object)
    failed = Signal(str)

    def __init__(self, find: Callable[[str], RunSummary | None], parent: QObject | None = None) -> None:
        """Create a writer. `find` returns the run with an id, or None if it has been removed."""
        super().__init__(parent)
        self._find = find
        self._queue: deque[tuple[RunSummary, dict[str, Any]]] = deque()
        self._written_run: RunSummary | None = None  # run whose notes are being written
        self._flight = SingleFlight(self, self._next_call, self._on_written, self._on_failed)

    def change(self, run: RunSummary, **changes: Any) -> None:
        """Schedule changes to fields of a run's `RunNotes`."""
        self._queue.append((run, changes))
        self._flight.request()

    def close(self) -> None:
        """Store the remaining changes when the window closes. Give up if the disk doesn't respond."""
        # Each delivered result starts the next call. A call that takes too long is abandoned, which ends the loop.
        while self._flight.running:
            self._flight.finish()

    def _next_call(self) -> Callable[[], RunNotes] | None:
        """Take the next change, and return a function that stores it, or None if there is none."""
        if not self._queue:
            return None
        run, changes = self._queue.popleft()
        self._written_run = run
        return lambda: change_notes(Path(run.folder), **changes)

    def _on_written(self, notes: RunNotes) -> None:
        """Emit the run with its new notes, and write the next ones."""
        # The run may have changed or been removed while its notes were written.
        run = self._find(self._written_run.run_id) if self._written_run is not None else None
        self._flight.request()  # writes the next change
        if run is not None:
            self.written.emit(
                msgspec.structs.replace(
                    run,
                    name=run.name if notes.name is None else notes.name,
                    tags=notes.tags,
                    notes=notes.text,
                    favorite=notes.favorite,
                    set_aside=notes.set_aside,
                )
            )

    def _on_failed(self, error: Exception) -> None:
        """Report that notes couldn't be saved, and write the next ones. Unexpected errors are raised."""
        run = self._written_run
        self._flight.request()
        if run is None or not isinstance(error, OSError):
            raise error
        self.failed.emit(
            tr("Could not save the notes of {run_id}: {strerror} ({folder}).").format(
                run_id=run.run_id, strerror=error.strerror, folder=run.folder
            )
        )
