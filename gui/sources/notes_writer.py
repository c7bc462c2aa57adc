"""Writing what the user says of runs to their folders, away from the window's thread and in the order it was said."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from PySide6.QtCore import QObject, Signal

from engine.runs.folder import RunSummary
from engine.runs.notes import RunNotes, change_notes
from gui.sources.background import Background, in_background


class NotesWriter(QObject):
    """Signals:
    written(RunSummary): the run as it now stands in the list.
    failed(str): what could not be written and why, in words for the user.
    """

    written = Signal(object)
    failed = Signal(str)

    def __init__(self, find: Callable[[str], RunSummary | None], parent: QObject | None = None) -> None:
        """`find` gives the run of an id, None where it is gone."""
        super().__init__(parent)
        self._find = find
        self._waiting: deque[tuple[RunSummary, dict[str, Any]]] = deque()
        self._writing: Background | None = None

    def change(self, run: RunSummary, **changes: Any) -> None:
        """Has the notes of `run` changed; the fields are those of `RunNotes`."""
        self._waiting.append((run, changes))
        self._write_next()

    def close(self) -> None:
        """Writes what is left, for the end of the window."""
        while self._writing is not None:
            self._writing.finish()

    def _write_next(self) -> None:
        if self._writing is None and self._waiting:
            run, changes = self._waiting.popleft()
            self._writing = in_background(
                lambda: change_notes(Path(run.folder), **changes),
                self,
                lambda notes: self._wrote(run.run_id, notes),
                lambda error: self._failed(run, error),
            )

    def _wrote(self, run_id: str, notes: RunNotes) -> None:
        self._writing = None
        run = self._find(run_id)
        if run is not None:
            self.written.emit(
                msgspec.structs.replace(
                    run,
                    name=run.name if notes.name is None else notes.name,
                    tags=notes.tags,
                    notes=notes.text,
                    favourite=notes.favourite,
                    set_aside=notes.set_aside,
                )
            )
        self._write_next()

    def _failed(self, run: RunSummary, error: Exception) -> None:
        self._writing = None
        self._write_next()
        if not isinstance(error, OSError):
            raise error
        self.failed.emit(f"Could not save the notes of {run.run_id}: {error.strerror} ({run.folder}).")
