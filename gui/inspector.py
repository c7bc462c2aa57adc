"""Looking through a dataset folder, in a process of its own (``python -m engine.data``)."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QProcess, Signal

from engine.contract.dataset import INSPECTION, DatasetReport, InspectionDone
from engine.contract.protocol import FrameError, Frames

REPORT_LIMIT_BYTES = 64 << 20
GOODBYE_MS = 3000
ROOT = Path(__file__).resolve().parents[1]


class Inspector(QObject):
    """Looks through one folder at a time; a new one ends the last.

    Signals: progress(int, int) - files done and in all, 0 while unknown; done(object) - the DatasetReport;
    failed(str) - why there is none.
    Attributes: folder - the folder asked for last, "" where none is.
    """

    progress = Signal(int, int)
    done = Signal(object)
    failed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.folder = ""
        self._process: QProcess | None = None
        self._ending: list[QProcess] = []
        self._frames = Frames(REPORT_LIMIT_BYTES)
        self._report: DatasetReport | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self, folder: str, val_fraction: float, seed: int) -> None:
        """Begins to look through `folder`; the answer comes as a signal."""
        self.cancel()
        self.folder = folder
        self._frames = Frames(REPORT_LIMIT_BYTES)
        self._report = None
        process = QProcess(self)
        process.setWorkingDirectory(str(ROOT))
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._finished)
        process.errorOccurred.connect(self._failed_to_start)
        self._process = process
        options = ["--val-fraction", str(val_fraction), "--seed", str(seed)]
        process.start(sys.executable, ["-m", "engine.data", folder, *options])
        self.progress.emit(0, 0)

    def cancel(self) -> None:
        """Ends the process, if there is one, without an answer."""
        process, self._process = self._process, None
        if process is None:
            return
        process.readyReadStandardOutput.disconnect(self._read)
        process.finished.disconnect(self._finished)
        process.errorOccurred.disconnect(self._failed_to_start)
        self._ending.append(process)
        process.finished.connect(self._bury)
        process.kill()

    def close(self) -> None:
        """Ends the process and waits for it and those cancelled before, for the end of the program."""
        self.cancel()
        for process in list(self._ending):  # each takes itself off the list when it is gone
            process.waitForFinished(GOODBYE_MS)

    def _bury(self) -> None:
        gone = [process for process in self._ending if process.state() == QProcess.ProcessState.NotRunning]
        for process in gone:
            self._ending.remove(process)
            process.deleteLater()

    def _read(self) -> None:
        if self._process is None:
            return
        try:
            lines = self._frames.feed(bytes(self._process.readAllStandardOutput().data()))
            for line in lines:
                message = INSPECTION.decode(line)
                if isinstance(message, InspectionDone):
                    self._report = message.report
                else:
                    self.progress.emit(message.done, message.total)
        except (FrameError, msgspec.DecodeError) as error:
            self.cancel()
            self.failed.emit(f"The answer about the folder could not be understood: {error}.")

    def _failed_to_start(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self.cancel()
            self.failed.emit(f"The folder cannot be looked through: {sys.executable} did not start.")

    def _finished(self, code: int) -> None:
        self._read()
        process, self._process = self._process, None
        if process is None:
            return
        said = bytes(process.readAllStandardError().data()).decode(errors="replace").strip()
        process.deleteLater()
        if self._report is not None:
            self.done.emit(self._report)
        else:
            last = said.splitlines()[-1] if said else f"exit code {code}"
            self.failed.emit(f"Looking through the folder ended early: {last}")
