"""The window's end of the device sampler, which is a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QProcess, QTimer, Signal

from engine.contract import paths
from engine.contract.devices import Snapshot

SILENCE_S = 10.0
"""A sampler that has said nothing for so long is ended and started again."""

_FIRST_PAUSE_MS = 500
_LONGEST_PAUSE_MS = 30_000
_GOODBYE_MS = 1000
_ROOT = Path(__file__).resolve().parents[2]


class SamplerProcess(QObject):
    """Owns one ``python -m engine.gpus`` and starts it again, ever more slowly, when it ends.

    Signals:
        snapshot(Snapshot): what the sampler saw, at its interval.
        trouble(str): in plain words, why no snapshot comes; "" once they come again.
    """

    snapshot = Signal(object)
    trouble = Signal(str)

    def __init__(
        self, parent: QObject | None = None, *, interval_s: float = 1.0, arguments: list[str] | None = None
    ) -> None:
        """`arguments` are for the Python interpreter, where another sampler is to be run than this machine's."""
        super().__init__(parent)
        self._arguments = arguments or ["-m", "engine.gpus", "--interval", f"{interval_s:g}"]
        self._decoder = msgspec.json.Decoder(Snapshot)
        self._process: QProcess | None = None
        self._rest = b""
        self._pause_ms = _FIRST_PAUSE_MS
        self._troubled = False
        self._again = QTimer(self, singleShot=True)
        self._again.timeout.connect(self._launch)
        self._silence = QTimer(self, singleShot=True, interval=int(1000 * max(SILENCE_S, 3 * interval_s)))
        self._silence.timeout.connect(self._fell_silent)

    @property
    def running(self) -> bool:
        """Whether there is a sampler process now."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.processId() or None if self._process is not None else None

    def start(self) -> None:
        """Starts sampling; nothing happens where it has been started already."""
        if self._process is None and not self._again.isActive():
            self._launch()

    def stop(self) -> None:
        """Ends the process and returns once it is gone (at most about two seconds)."""
        self._again.stop()
        self._silence.stop()
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        if not process.waitForFinished(_GOODBYE_MS):
            process.kill()
            process.waitForFinished(_GOODBYE_MS)
        process.deleteLater()

    def _launch(self) -> None:
        process = QProcess(self)
        process.setWorkingDirectory(str(_ROOT))
        process.setStandardErrorFile(_error_file())
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._ended)
        process.errorOccurred.connect(self._could_not_start)
        self._rest = b""
        self._process = process
        self._silence.start()
        process.start(sys.executable, self._arguments)

    def _read(self) -> None:
        if self._process is None:
            return
        *lines, self._rest = (self._rest + self._process.readAllStandardOutput().data()).split(b"\n")
        for line in lines:
            try:
                snapshot = self._decoder.decode(line)
            except msgspec.DecodeError:
                self._report("The device sampler says something that this window does not understand.")
                continue
            self._pause_ms = _FIRST_PAUSE_MS
            self._silence.start()
            self._report("")
            self.snapshot.emit(snapshot)

    def _fell_silent(self) -> None:
        self._report("The device sampler has not answered for a while; it is being started again.")
        if self._process is not None:
            self._process.kill()

    def _could_not_start(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self._ended()

    def _ended(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._silence.stop()
        process.deleteLater()
        seconds = self._pause_ms / 1000
        self._report(f"The device sampler has ended; it is started again in {seconds:g} s.")
        self._again.start(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)

    def _report(self, message: str) -> None:
        if message or self._troubled:
            self._troubled = bool(message)
            self.trouble.emit(message)


def _error_file() -> str:
    """Where the sampler's own faults are written, in the log folder; nowhere where that cannot be made."""
    logs = paths.home() / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError:
        return QProcess.nullDevice()
    return str(logs / "sampler.log")
