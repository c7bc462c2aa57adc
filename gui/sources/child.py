"""One run of a module of the engine in a process of its own, which answers in lines."""

from __future__ import annotations

import sys
from typing import ClassVar

import msgspec
from PySide6.QtCore import QObject, QProcess, Signal

from engine.contract.protocol import FrameError, Frames
from engine.system import paths

GOODBYE_MS = 3000


class ChildModule(QObject):
    """Runs ``python -m MODULE`` once at a time; a new start ends the last.

    A subclass says what to do with each line (`_take`, which may raise msgspec.DecodeError) and what the answer
    is (`_answer`). `doing` begins the sentences on what went wrong, e.g. "Looking through the folder".

    Signals: failed(str) - why there is no answer.
    """

    failed = Signal(str)
    cleans_up: ClassVar[bool] = False
    """Whether the module has workers to end, and files to remove, when it is cancelled."""

    def __init__(self, module: str, doing: str, line_limit_bytes: int, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._module = module
        self._doing = doing
        self._limit = line_limit_bytes
        self._process: QProcess | None = None
        self._ending: list[QProcess] = []
        self._frames = Frames(line_limit_bytes)

    @property
    def running(self) -> bool:
        return self._process is not None

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
        self._end(process)

    def close(self) -> None:
        """Ends the process and waits for it and those cancelled before, for the end of the program."""
        self.cancel()
        for process in list(self._ending):  # each takes itself off the list when it is gone
            process.waitForFinished(GOODBYE_MS)

    def _start(self, arguments: list[str], given: bytes = b"") -> None:
        """Begins with `arguments`, and with `given` on the standard input."""
        self.cancel()
        self._frames = Frames(self._limit)
        process = QProcess(self)
        process.setWorkingDirectory(str(paths.PACKAGES))
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._finished)
        process.errorOccurred.connect(self._failed_to_start)
        self._process = process
        process.start(*self._command(arguments))
        if given:
            process.write(given)
        process.closeWriteChannel()

    def _command(self, arguments: list[str]) -> tuple[str, list[str]]:
        """The program that runs the module, and what it is told."""
        return sys.executable, ["-m", self._module, *arguments]

    def _end(self, process: QProcess) -> None:
        """At once, or where it `cleans_up` by a signal that it can answer."""
        if self.cleans_up and sys.platform != "win32":
            process.terminate()
        else:
            process.kill()

    def _take(self, line: bytes) -> None:
        raise NotImplementedError

    def _answer(self) -> bool:
        """Hands the answer on, once the process has ended; False where it gave none."""
        raise NotImplementedError

    def _bury(self) -> None:
        gone = [process for process in self._ending if process.state() == QProcess.ProcessState.NotRunning]
        for process in gone:
            self._ending.remove(process)
            process.deleteLater()

    def _read(self) -> None:
        if self._process is None:
            return
        try:
            for line in self._frames.feed(bytes(self._process.readAllStandardOutput().data())):
                self._take(line)
        except (FrameError, msgspec.DecodeError) as error:
            self.cancel()
            self.failed.emit(f"{self._doing} returned invalid output: {error}.")

    def _failed_to_start(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self.cancel()
            self.failed.emit(f"{self._doing} could not start: {sys.executable} failed to run.")

    def _finished(self, code: int) -> None:
        self._read()
        process, self._process = self._process, None
        if process is None:
            return
        said = bytes(process.readAllStandardError().data()).decode(errors="replace").strip()
        process.deleteLater()
        if not self._answer():
            last = said.splitlines()[-1] if said else f"exit code {code}"
            self.failed.emit(f"{self._doing} ended early: {last}")
