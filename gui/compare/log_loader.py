"""Reading the logs of several runs away from the window's thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from engine.runs.folder import RunFolder
from gui.compare.compared_run import ComparedRun
from gui.sources.background import describe_error, emit_safely
from gui.sources.run_data import RunData
from gui.sources.run_reader import LogReader


class Reading(QObject):
    """Reads runs one after another on a thread of its own; a new start ends the last.

    Signals:
        read(ComparedRun): one of them, whole.
        unread(str, str): the id of one that cannot be read, and why; "" where it is gone.
        complete(): all have been read.
    """

    read = Signal(object)
    unread = Signal(str, str)
    complete = Signal()
    _said = Signal(int, object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._turn = 0
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._said.connect(self._pass_on)

    def start(self, runs: Sequence[tuple[int, RunFolder]]) -> None:
        """Reads `runs`, each with its place among those compared."""
        self.close()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._work, args=(self._turn, list(runs), self._ended), name="compared runs", daemon=True
        )
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None

    def close(self) -> None:
        """Ends the reading; returns once it has ended. What it has read is told no more."""
        self._turn += 1
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self, turn: int, runs: list[tuple[int, RunFolder]], ended: threading.Event) -> None:
        for series, run in runs:
            said: ComparedRun | str
            try:
                said = read_run(series, run, ended) or ""
            except Exception as error:  # whatever one run's files hold, the others are to be seen
                said = describe_error(error)
            if ended.is_set() or not emit_safely(self._said, turn, run.run_id, said):
                return
        emit_safely(self._said, turn, None, None)

    def _pass_on(self, turn: int, run_id: str | None, said: ComparedRun | str) -> None:
        if turn != self._turn:
            return
        if run_id is None:
            self._thread = None
            self.complete.emit()
        elif isinstance(said, str):
            self.unread.emit(run_id, said)
        else:
            self.read.emit(said)


def read_run(series: int, run: RunFolder, ended: threading.Event) -> ComparedRun | None:
    """All that `run` has said; None where there is no such run. Stops in between once `ended` is set. Raises OSError,
    and whatever damaged files may lead to.
    """
    try:
        summary = run.summary()
    except FileNotFoundError:
        return None
    data = RunData()
    reader = LogReader(run.events_file)
    try:
        while not ended.is_set() and (events := reader.read()) is not None:
            data.apply_all(events)
    finally:
        reader.close()
    return ComparedRun(series, summary, data.started.job if data.started is not None else run.job(), data)
