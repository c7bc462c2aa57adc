"""The window's end of a device sampler, which is a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec
from PySide6.QtCore import QIODevice, QObject, QProcess, QProcessEnvironment, QTimer, Signal

from engine.contract.devices import Snapshot, SnapshotRequest
from engine.contract.protocol import FrameError, Frames
from engine.system import paths

SILENCE_S = 10.0
"""A sampler that has said nothing for so long is ended and started again."""

LINE_LIMIT_BYTES = 1 << 23
"""More than any snapshot has: sixteen GPUs with a thousand processes each."""

_FIRST_PAUSE_MS = 500
_LONGEST_PAUSE_MS = 30_000
_GOODBYE_MS = 1000
_LAST_WORDS_BYTES = 1 << 12
_LOG_BYTES = 1 << 20
"""Size from which on a restart begins a new log; else it is continued, since it holds the cause of the restart."""

Explain = Callable[[int, str], str]
"""From a process's exit code and the end of its standard error to why it ended, as one sentence."""


class SamplerProcess(QObject):
    """Owns one process that prints snapshots, this machine's ``python -m engine.gpus`` unless told otherwise, and
    starts it again, ever more slowly, when it ends.

    Signals:
        snapshot(Snapshot): what the sampler saw, at its interval.
        trouble(str): in plain words, why no snapshot comes; "" once they come again.
    """

    snapshot = Signal(object)
    trouble = Signal(str)

    def __init__(
        self,
        parent: QObject | None = None,
        *,
        interval_s: float = 1.0,
        program: str = sys.executable,
        arguments: Sequence[str] | None = None,
        who: str = "The device sampler",
        silence_s: float | None = None,
        explain: Explain | None = None,
    ) -> None:
        """`program` and `arguments` are for another sampler than this machine's; `who` begins the sentences about it.

        `silence_s` is how long it may say nothing. Where `explain` is given, its standard error is read and explained,
        in place of being written to the log folder.
        """
        super().__init__(parent)
        self._listens = arguments is None
        own = ["-m", "engine.gpus", "--interval", f"{interval_s:g}", "--listen"]
        self._program = program
        self._arguments = own if arguments is None else list(arguments)
        self._who = who
        self._explain = explain
        self._shown = SnapshotRequest()
        self._decoder = msgspec.json.Decoder(Snapshot)
        self._process: QProcess | None = None
        self._frames = Frames(LINE_LIMIT_BYTES)
        self._last_words = b""
        self._silent = False
        self._pause_ms = _FIRST_PAUSE_MS
        self._troubled = False
        self._again = QTimer(self, singleShot=True)
        self._again.timeout.connect(self._launch)
        self._silence = QTimer(self, singleShot=True)
        self._silence_s = silence_s
        self._be_patient(interval_s)
        self._silence.timeout.connect(self._fell_silent)

    def set_interval(self, interval_s: float) -> None:
        """Has this machine's sampler look so often from now on."""
        at = self._arguments.index("--interval") + 1
        if self._arguments[at] != f"{interval_s:g}":
            self._arguments[at] = f"{interval_s:g}"
            self._be_patient(interval_s)
            if self._process is not None:
                self.stop()
                self.start()

    def _be_patient(self, interval_s: float) -> None:
        patience_s = max(SILENCE_S, 3 * interval_s) if self._silence_s is None else self._silence_s
        self._silence.setInterval(int(1000 * patience_s))

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

    def show(self, shown: SnapshotRequest) -> None:
        """Tells this machine's sampler what is on screen, so that it asks for no more; others tell all there is."""
        if shown != self._shown:
            self._shown = shown
            self._tell_shown()

    def stop(self, *, wait: bool = True) -> None:
        """End the process, waiting for it for at most about two seconds."""
        self._again.stop()
        self._silence.stop()
        process, self._process = self._process, None
        if process is None:
            return
        process.readyReadStandardOutput.disconnect(self._read)
        process.readyReadStandardError.disconnect(self._read_error)
        process.finished.disconnect(self._ended)
        process.errorOccurred.disconnect(self._could_not_start)
        if not wait:
            process.setParent(self.parent())  # this object may be deleted first
            process.finished.connect(process.deleteLater)
            process.terminate()
            QTimer.singleShot(_GOODBYE_MS, process, process.kill)
            return
        process.terminate()
        if not process.waitForFinished(_GOODBYE_MS):
            process.kill()
            process.waitForFinished(_GOODBYE_MS)
        process.deleteLater()

    def _launch(self) -> None:
        process = QProcess(self)
        process.setWorkingDirectory(str(paths.PACKAGES))
        if self._explain is None:
            process.setStandardErrorFile(*_error_file())
        else:
            # What is explained is matched by its words, which the system would translate.
            environment = QProcessEnvironment.systemEnvironment()
            environment.insert("LC_ALL", "C")
            process.setProcessEnvironment(environment)
        if not self._listens:
            process.setStandardInputFile(QProcess.nullDevice())
        process.readyReadStandardOutput.connect(self._read)
        process.readyReadStandardError.connect(self._read_error)
        process.finished.connect(self._ended)
        process.errorOccurred.connect(self._could_not_start)
        self._frames = Frames(LINE_LIMIT_BYTES)
        self._last_words = b""
        self._silent = False
        self._process = process
        self._silence.start()
        process.start(self._program, self._arguments)
        self._tell_shown()

    def _tell_shown(self) -> None:
        process = self._process
        if self._listens and process is not None and process.state() != QProcess.ProcessState.NotRunning:
            process.write(msgspec.json.encode(self._shown) + b"\n")

    def _read(self) -> None:
        if self._process is None:
            return
        try:
            lines = self._frames.feed(bytes(self._process.readAllStandardOutput().data()))
        except FrameError:
            self._frames = Frames(LINE_LIMIT_BYTES)
            self._misunderstood()
            return
        for line in lines:
            try:
                snapshot = self._decoder.decode(line)
            except msgspec.DecodeError:
                self._misunderstood()
                continue
            self._pause_ms = _FIRST_PAUSE_MS
            self._silence.start()
            self._report("")
            self.snapshot.emit(snapshot)

    def _misunderstood(self) -> None:
        self._report(f"{self._who} sent output that this window can't read.")

    def _read_error(self) -> None:
        if self._process is not None:
            said = self._last_words + bytes(self._process.readAllStandardError().data())
            self._last_words = said[-_LAST_WORDS_BYTES:]

    def _fell_silent(self) -> None:
        self._silent = True
        self._report(f"{self._who} has stopped responding and is being restarted.")
        if self._process is not None:
            self._process.kill()

    def _could_not_start(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self._gone(f"{self._who} can't be started: “{self._program}” was not found on this machine.")

    def _ended(self, code: int, status: QProcess.ExitStatus) -> None:
        self._read_error()
        why = f"{self._who} has stopped responding." if self._silent else f"{self._who} has exited."
        if self._explain is not None and status == QProcess.ExitStatus.NormalExit:
            why = self._explain(code, self._last_words.decode(errors="replace").strip())
        self._gone(why)

    def _gone(self, why: str) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        self._silence.stop()
        process.deleteLater()
        self._report(f"{why} Retrying in {self._pause_ms / 1000:g} s.")
        self._again.start(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)

    def _report(self, message: str) -> None:
        if message or self._troubled:
            self._troubled = bool(message)
            self.trouble.emit(message)


def _error_file() -> tuple[str, QIODevice.OpenModeFlag]:
    """Return the log file of the sampler's errors, the null device if it can't be written, and how to open it."""
    append, truncate = QIODevice.OpenModeFlag.Append, QIODevice.OpenModeFlag.Truncate
    logs = paths.home() / "logs"
    file = logs / "sampler.log"
    try:
        paths.private_folder(logs)
        full = file.exists() and file.stat().st_size > _LOG_BYTES
    except OSError:
        return QProcess.nullDevice(), append
    return str(file), truncate if full else append
