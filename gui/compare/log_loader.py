"""Loader of the logs of several runs on a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from engine.runs.folder import RunFolder
from gui.compare.compared_run import ComparedRun
from gui.sources.background import describe_error, emit_safely
from gui.sources.run_data import RunData
from gui.sources.run_reader import LogReader


class LogLoader(QObject):
    """Loader of runs, one after another on a thread; a new start ends the previous one.

    Signals:
        read(ComparedRun): a completely loaded run.
        unread(str, str): id of an unreadable run and the reason, "" if it was deleted.
        complete(): all runs have been loaded.
    """

    read = Signal(object)
    unread = Signal(str, str)
    complete = Signal()
    _loaded = Signal(int, object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._generation = 0
        self._thread: threading.Thread | None = None
        self._stop_event = threading.Event()
        self._loaded.connect(self._report)

    def start(self, runs: Sequence[tuple[int, RunFolder]]) -> None:
        """Load `runs`, each with its index among the compared ones."""
        self.close()
        self._stop_event = threading.Event()
        self._thread = threading.Thread(
            target=self._work, args=(self._generation, list(runs), self._stop_event), name="compared runs", daemon=True
        )
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread is not None

    def close(self) -> None:
        """Stop loading and discard pending results."""
        self._generation += 1
        self._stop_event.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self, generation: int, runs: list[tuple[int, RunFolder]], is_stopped: threading.Event) -> None:
        for series, run in runs:
            result: ComparedRun | str
            try:
                result = read_run(series, run, is_stopped) or ""
            except Exception as error:  # a damaged run must not hide the others
                result = describe_error(error)
            if is_stopped.is_set() or not emit_safely(self._loaded, generation, run.run_id, result):
                return
        emit_safely(self._loaded, generation, None, None)

    def _report(self, generation: int, run_id: str | None, result: ComparedRun | str) -> None:
        if generation != self._generation:
            return
        if run_id is None:
            self._thread = None
            self.complete.emit()
        elif isinstance(result, str):
            self.unread.emit(run_id, result)
        else:
            self.read.emit(result)


def read_run(series: int, run: RunFolder, is_stopped: threading.Event) -> ComparedRun | None:
    """Load `run`, None if it does not exist; stop early once `is_stopped` is set. Raises OSError and others."""
    try:
        summary = run.summary()
    except FileNotFoundError:
        return None
    data = RunData()
    reader = LogReader(run.events_file)
    try:
        while not is_stopped.is_set() and (events := reader.read()) is not None:
            data.apply_all(events)
    finally:
        reader.close()
    return ComparedRun(series, summary, data.started.job if data.started is not None else run.job(), data)
