"""Child process that samples devices and is restarted after failures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import msgspec
from PySide6.QtCore import QIODevice, QObject, QProcess, QProcessEnvironment, QTimer, Signal

from engine.contract.devices import Snapshot, SnapshotRequest
from engine.contract.protocol import FrameError, Frames
from engine.system import paths
from gui.sources.background import await_exit
from gui.translation import tr

SILENCE_S = 10.0
"""Seconds without a snapshot after which a sampler is killed and restarted."""

LINE_LIMIT_BYTES = 1 << 23
"""Maximum length of a line: enough for sixteen GPUs with a thousand processes each."""

_FIRST_PAUSE_MS = 500
_LONGEST_PAUSE_MS = 30_000
_GOODBYE_S = 1.0
"""Seconds after which a sampler that was asked to end is killed."""
_ERROR_TAIL_BYTES = 1 << 12
_LOG_BYTES = 1 << 20
"""Maximum size of a log for appending to it after a restart. A larger log is replaced.

Appending preserves the cause of the first failure.
"""

_SAVE_HISTORY = "--save-history"

Explain = Callable[[int, str], str]
"""Function that explains an exit, given the exit code and the end of standard error."""


class SamplerProcess(QObject):
    """Process that prints snapshots, by default ``python -m engine.gpus``.

    It restarts after failures, at growing intervals.

    Signals:
        snapshot(Snapshot): readings of the devices.
        error_changed(str): the reason why snapshots are missing, or "" once they arrive again.
    """

    snapshot = Signal(object)
    error_changed = Signal(str)

    def __init__(
        self,
        parent: QObject | None = None,
        *,
        interval_s: float = 1.0,
        program: str = sys.executable,
        arguments: Sequence[str] | None = None,
        who: str = tr("The device sampler"),
        silence_s: float | None = None,
        explain: Explain | None = None,
    ) -> None:
        """Prepare the process without starting it.

        Args:
            parent: Owner of the object.
            interval_s: Seconds between snapshots of this machine.
            program: Program to run as the sampler, by default Python.
            arguments: Arguments of the program, or None for this machine's sampler.
            who: Start of messages, which names the sampler.
            silence_s: Seconds without a snapshot after which the process is restarted, by default at
                least three intervals.
            explain: Function that returns the message about an exit, given the exit code and the end of standard
                error. Without it, standard error is written to the log folder.
        """
        super().__init__(parent)
        self._reads_requests = arguments is None  # only this machine's sampler does
        default = ["-m", "engine.gpus", "--interval", f"{interval_s:g}", "--listen"]
        self._program = program
        self._arguments = default if arguments is None else list(arguments)
        self._who = who
        self._explain = explain
        self._request = SnapshotRequest()  # quantities to read
        self._decoder = msgspec.json.Decoder(Snapshot)
        self._process: QProcess | None = None
        self._frames = Frames(LINE_LIMIT_BYTES)
        self._error_tail = b""  # end of standard error
        self._is_silent = False  # True once the process has stopped responding
        self._pause_ms = _FIRST_PAUSE_MS  # pause before the next restart
        self._has_message = False  # True while a message about the sampler is visible
        self._restart_timer = QTimer(self, singleShot=True)
        self._restart_timer.timeout.connect(self._launch)
        self._silence_timer = QTimer(self, singleShot=True)
        self._silence_s = silence_s
        self._set_timeout(interval_s)
        self._silence_timer.timeout.connect(self._on_silence)

    def set_interval(self, interval_s: float) -> None:
        """Set the sampling interval for this machine and restart its sampler."""
        index = self._arguments.index("--interval") + 1
        if self._arguments[index] != f"{interval_s:g}":
            self._arguments[index] = f"{interval_s:g}"
            self._set_timeout(interval_s)
            self._restart_if_running()

    def set_history(self, is_saved: bool) -> None:
        """Set whether this machine's sampler saves readings for later sessions, and restart it."""
        if is_saved != (_SAVE_HISTORY in self._arguments):
            if is_saved:
                self._arguments.append(_SAVE_HISTORY)
            else:
                self._arguments.remove(_SAVE_HISTORY)
            self._restart_if_running()

    def _restart_if_running(self) -> None:
        """Restart a running process, so that it gets the changed arguments."""
        if self._process is not None:
            self.stop(wait=False)
            self.start()

    def _set_timeout(self, interval_s: float) -> None:
        """Set the time without a snapshot after which the process is restarted."""
        silence_s = max(SILENCE_S, 3 * interval_s) if self._silence_s is None else self._silence_s
        self._silence_timer.setInterval(int(1000 * silence_s))

    @property
    def running(self) -> bool:
        """True while a sampler process exists."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Process id of the sampler, or None if it isn't running."""
        if self._process is None:
            return None
        return self._process.processId() or None  # 0 before the process has started

    def start(self) -> None:
        """Start the sampler unless it has been started."""
        if self._process is None and not self._restart_timer.isActive():
            self._launch()

    def set_request(self, request: SnapshotRequest) -> None:
        """Restrict this machine's sampler to the requested readings. Other samplers always send all readings."""
        if request != self._request:
            self._request = request
            self._send_request()

    def stop(self, *, wait: bool = True) -> None:
        """Stop the sampler. If `wait`, wait up to about two seconds until it has exited."""
        self._restart_timer.stop()
        self._silence_timer.stop()
        process, self._process = self._process, None
        if process is None:
            return
        process.readyReadStandardOutput.disconnect(self._read)
        process.readyReadStandardError.disconnect(self._read_standard_error)
        process.finished.disconnect(self._on_exit)
        process.errorOccurred.disconnect(self._on_start_failed)
        if not wait:
            process.setParent(self.parent())  # this object may be deleted first
            process.finished.connect(process.deleteLater)
            process.terminate()
            QTimer.singleShot(int(1000 * _GOODBYE_S), process, process.kill)
            return
        process.terminate()
        await_exit(process, _GOODBYE_S)
        process.deleteLater()

    def _launch(self) -> None:
        """Start the process and send it the requested readings.

        Standard error is written to a file or, if there is a function `_explain`, collected for this function.
        """
        process = QProcess(self)
        process.setWorkingDirectory(str(paths.PACKAGES))
        if self._explain is None:
            process.setStandardErrorFile(*_error_file())
        else:
            # `explain` matches English messages.
            environment = QProcessEnvironment.systemEnvironment()
            environment.insert("LC_ALL", "C")
            process.setProcessEnvironment(environment)
        if not self._reads_requests:
            process.setStandardInputFile(QProcess.nullDevice())
        process.readyReadStandardOutput.connect(self._read)
        process.readyReadStandardError.connect(self._read_standard_error)
        process.finished.connect(self._on_exit)
        process.errorOccurred.connect(self._on_start_failed)
        self._frames = Frames(LINE_LIMIT_BYTES)
        self._error_tail = b""
        self._is_silent = False
        self._process = process
        self._silence_timer.start()
        process.start(self._program, self._arguments)
        self._send_request()

    def _send_request(self) -> None:
        """Send the requested readings to a running sampler of this machine. Other samplers read no requests."""
        process = self._process
        if self._reads_requests and process is not None and process.state() != QProcess.ProcessState.NotRunning:
            process.write(msgspec.json.encode(self._request) + b"\n")

    def _read(self) -> None:
        """Emit the snapshots that have arrived. A valid snapshot resets the restart pause and the silence timer."""
        process = self._process
        if process is None:
            return
        try:
            lines = self._frames.feed(bytes(process.readAllStandardOutput().data()))
        except FrameError:
            self._frames = Frames(LINE_LIMIT_BYTES)
            self._on_bad_output()
            return
        for line in lines:
            if self._process is not process:  # a receiver of `snapshot` has stopped it
                return
            try:
                snapshot = self._decoder.decode(line)
            except msgspec.DecodeError:
                self._on_bad_output()
                continue
            self._pause_ms = _FIRST_PAUSE_MS
            self._silence_timer.start()
            self._report("")
            self.snapshot.emit(snapshot)

    def _on_bad_output(self) -> None:
        """Report output that can't be decoded. The process continues, and is restarted if no valid snapshot follows."""
        self._report(tr("{who} sent output that this window can't read.").format(who=self._who))

    def _read_standard_error(self) -> None:
        """Add new errors to `_error_tail`, which `explain` gets when the process exits."""
        if self._process is not None:
            tail = self._error_tail + bytes(self._process.readAllStandardError().data())
            self._error_tail = tail[-_ERROR_TAIL_BYTES:]

    def _on_silence(self) -> None:
        """Kill a process that has stopped sending snapshots. Its exit leads to a restart."""
        self._is_silent = True
        self._report(tr("{who} has stopped responding and is being restarted.").format(who=self._who))
        if self._process is not None:
            self._process.kill()

    def _on_start_failed(self, error: QProcess.ProcessError) -> None:
        """Report that the program couldn't be started, and retry later. A crash is handled by `_on_exit`."""
        if error == QProcess.ProcessError.FailedToStart:
            self._schedule_restart(
                tr("{who} can't be started: “{program}” was not found on this machine.").format(
                    who=self._who, program=self._program
                )
            )

    def _on_exit(self, code: int, status: QProcess.ExitStatus) -> None:
        """Report why the process has exited, and schedule its restart."""
        self._read_standard_error()
        reason = tr("{who} has exited.").format(who=self._who)
        if self._is_silent:
            reason = tr("{who} has stopped responding.").format(who=self._who)
        if self._explain is not None and status == QProcess.ExitStatus.NormalExit:
            reason = self._explain(code, self._error_tail.decode(errors="replace").strip())
        self._schedule_restart(reason)

    def _schedule_restart(self, reason: str) -> None:
        """Report why the process ended, and restart it after a pause that doubles each time."""
        process, self._process = self._process, None
        if process is None:  # it has been stopped
            return
        self._silence_timer.stop()
        process.deleteLater()
        self._report(tr("{reason} Retrying in {pause_s:g} s.").format(reason=reason, pause_s=self._pause_ms / 1000))
        self._restart_timer.start(self._pause_ms)
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)

    def _report(self, message: str) -> None:
        """Emit `error_changed` with `message`. Do nothing for "" if the last message was "" too."""
        if message or self._has_message:
            self._has_message = bool(message)
            self.error_changed.emit(message)


def _error_file() -> tuple[str, QIODevice.OpenModeFlag]:
    """Return the log file for the sampler's errors and its open mode, or the null device if it isn't writable."""
    append, truncate = QIODevice.OpenModeFlag.Append, QIODevice.OpenModeFlag.Truncate
    logs = paths.home() / "logs"
    file = logs / "sampler.log"
    try:
        paths.make_private_folder(logs)
        with file.open("ab") as log:  # fails if the file isn't writable
            is_full = log.tell() > _LOG_BYTES
    except OSError:
        return QProcess.nullDevice(), append
    return str(file), truncate if is_full else append
