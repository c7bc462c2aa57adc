"""One run as the window knows it: read from its log, then followed live."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, QSocketNotifier, QTimer, Signal

from engine.contract.events import RunFinished
from engine.contract.protocol import Adjust, Command, Goodbye, Pause, SaveElsewhere, Stop, Welcome
from engine.runs.connection import NotRunning, RunConnection, ServerMessage, silent
from engine.runs.folder import ENDED, RunFolder, State
from engine.runs.interruptions import why_interrupted
from engine.runs.slurm import no_pause, send, supervised_elsewhere
from engine.runs.slurm_job import FILE, read_slurm
from engine.system.plain_text import encodable
from gui.sources.background import Background, in_background
from gui.sources.log_reader import LogReader
from gui.sources.queue_position import RunNames, in_line_words
from gui.sources.run_data import Asked, RunData
from gui.sources.run_status import RunStatus, status_of

SLICE_S = 0.012
"""How long the log is read without letting the window do anything else."""

_TOLD_EVERY_MS = 100
_TOLD_RARER = 1.5
"""While a log is read, each pause between two drawings of its growing curves is so many times the one before, since
drawing takes time from reading."""

_START_POLL_MS = 20
_RETRY_MS = 500
_EXPECTED_S = 5.0
"""How long a run that has just been started may take to have a supervisor."""
_WATCH_MS = 200
"""How often it is looked whether somebody goes on with a run that has ended: two sizes of files."""
_PARTING_S = 1.0
"""How long the end of the program waits for a command that nobody takes."""


class RunSession(QObject):
    """Follows one run at a time. Views read `data` and `status` when told that something has changed.

    The past is read from the run's file in slices, then the supervisor is asked for what comes after it. Where
    the connection breaks, the file is read on, and the process table says what has become of the run. One that has
    ended is looked at now and then: where somebody goes on with it, it is followed on.

    Signals:
        opened(): another run, or none, is shown; `data` is a new one.
        changed(): there is more in `data`, or another `status`; at most ten times a second.
        finished(str): the run that was being followed has ended, with its outcome.
        message(str, str): in plain words, that a supervisor did not take a command; "warning".
    """

    opened = Signal()
    changed = Signal()
    finished = Signal(str)
    message = Signal(str, str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.data = RunData()
        self.run: RunFolder | None = None
        self.loading = False
        self._state: State = "starting"
        self._asked: Asked = ""
        self._refusal = self._interrupted = ""
        self._followed = False
        self._gpu_titles: Mapping[str, str] = {}
        self._names = RunNames()
        self._log: LogReader | None = None
        self._connection: RunConnection | None = None
        self._patience_ms = _START_POLL_MS
        self._gap_after = self._ended_at = -1
        self._notifier: QSocketNotifier | None = None
        self._reader = QTimer(self, interval=0)
        self._reader.timeout.connect(self._read_slice)
        self._look_again = QTimer(self, singleShot=True)
        self._look_again.timeout.connect(self._look)
        self._stamp: tuple[int, int] | None = None
        self._expected: tuple[float, tuple[int, int] | None] = (0.0, None)
        self._watch = QTimer(self, interval=_WATCH_MS)
        self._watch.timeout.connect(self._see_whether_it_goes_on)
        self._teller = QTimer(self, singleShot=True)
        self._teller.timeout.connect(self._tell)
        self._told_at = 0.0
        self._told_every_ms: float = _TOLD_EVERY_MS

    @property
    def status(self) -> RunStatus:
        if self.run is None:
            return RunStatus(text="Idle · nothing is running")
        waiting, started = self.data.waiting, self.data.started
        words = {"interrupted": self._interrupted} if self._interrupted else {}
        if waiting is not None and started is not None:
            words["in_line"] = in_line_words(waiting, started.job.devices, self._gpu_titles, self._names)
        elif self._state == "waiting" and (slurm := read_slurm(self.run.path)) is not None:
            words["in_line"] = f"SLURM {slurm.words}"
        status = status_of(self.data, self._state, self._asked, **words)
        if not self._refusal or not self.active:
            return status
        return replace(status, text=f"{status.text} · following its log ({self._refusal})")

    @property
    def active(self) -> bool:
        """Whether the open run is still going on."""
        return self.run is not None and self._state not in ENDED

    def name_gpus(self, titles: Mapping[str, str]) -> None:
        """What this machine's GPUs are called, by UUID."""
        self._gpu_titles = titles

    def remind(self) -> None:
        """Has `changed` told again soon, to a view that takes in what there is piece by piece."""
        self._changed()

    def open(self, run: RunFolder) -> None:
        """Shows `run` from its beginning and follows it while it goes on. The run that is shown already is looked at
        again, and stays as it is.
        """
        if self.run is not None and self.run.path == run.path:
            self._read_on()
            return
        self.close()
        self.run = run
        self.data = RunData()
        self._state = run.state()
        self._asked, self._followed, self._expected = "", False, (0.0, None)
        self._refusal = self._interrupted = ""
        self._patience_ms, self._gap_after, self._ended_at = _START_POLL_MS, -1, -1
        self.loading = True
        self._told_every_ms = _TOLD_EVERY_MS
        self.opened.emit()
        self._changed()
        self._reader.start()

    def expect(self) -> None:
        """The run that is shown has just been started: until it has a supervisor, it counts as starting."""
        if self.run is not None:
            self._expected = time.monotonic() + _EXPECTED_S, _stamp(self.run)
            self._read_on()

    def stop(self) -> None:
        """Asks the run to end after the step in hand, or to leave the line."""
        self._ask("stop")

    def pause(self) -> None:
        """Asks the run to save and to give its devices back after the step in hand."""
        if self.run is not None and supervised_elsewhere(self.run) is not None:
            self.message.emit(no_pause(self.run), "warning")
        else:
            self._ask("pause")

    def _ask(self, what: Asked) -> None:
        if self.active and self._asked not in (what, "stop"):
            self._asked = what
            self._send_asked()
            self._changed()

    def _send_asked(self) -> None:
        self._send(Stop() if self._asked == "stop" else Pause())

    def use_loader_workers(self, count: int) -> None:
        """Asks the run to read images with so many threads in each worker from now on."""
        if self.active and not self._asked:
            self._send(Adjust(loader_workers=count))

    def save_elsewhere(self, folder: str) -> None:
        """Asks the run to save the last state, which its own disk does not take, in `folder`."""
        if self.active:
            self._send(SaveElsewhere(folder=encodable(folder)))

    def finish(self) -> None:
        """Has the commands that are on their way arrive, as at the end of the program."""
        for sending in self.findChildren(Background):
            sending.finish(_PARTING_S)

    def close(self) -> None:
        """Lets go of the run, which goes on by itself, and shows none."""
        for timer in (self._reader, self._look_again, self._watch, self._teller):
            timer.stop()
        self._disconnect()
        self._close_file()
        self._log = None
        had_one, self.run = self.run is not None, None
        self.data = RunData()
        self.loading = False
        if had_one:
            self.opened.emit()
            self.changed.emit()

    # From the file

    def _read_slice(self) -> None:
        if self.run is None:
            return
        more = self._read_for(SLICE_S)
        self._changed()
        if not more:
            self._reader.stop()
            if self.loading:
                self.loading = False
                self._tell()  # the pause at hand may be a long one
            self._look()

    def _read_for(self, seconds: float) -> bool:
        """Takes in what the file has for so long; False once its end is reached."""
        if self.run is None:
            return False
        self._log = self._log or LogReader(self.run.events_file)
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            events = self._log.read()
            if events is None:
                return False
            self.data.apply_all(events)
        return True

    def _close_file(self) -> None:
        if self._log is not None:
            self._log.close()

    def _read_on(self) -> None:
        """Reads what the file has gained, and looks what has become of the run."""
        self._watch.stop()
        self._reader.start()

    # What has become of it

    def _look(self) -> None:
        """Once the file has been read to its end: follows the run on, or notes how it ended."""
        if self.run is None:
            return
        self._stamp = _stamp(self.run)
        before, self._state = self._state, self.run.state()
        until, unchanged = self._expected
        if self._state in ENDED and time.monotonic() < until and self._stamp == unchanged:
            self._state = "starting"
        if self._state in ENDED:
            last = self.run.last_event()
            if last is None or last.n <= self.data.last_n or self._ended_at == self.data.last_n:
                self._end()
            else:
                self._ended_at = self.data.last_n
                self._reader.start()  # its last lines have come since the file was read
            return
        if before in ENDED:
            self._asked, self._patience_ms, self._ended_at = "", _START_POLL_MS, -1
        self._followed = True
        if self._connection is not None:
            return
        if self._state == "starting" or not self._connect():
            self._look_again.start(self._patience_ms)
            self._patience_ms = min(int(self._patience_ms * 1.2), _RETRY_MS)
            self._read_for(SLICE_S)
            self._changed()
        if self._state != before:
            self._changed()

    def _end(self) -> None:
        self._look_again.stop()
        self._disconnect()
        self._close_file()
        if self._state == "interrupted" and self.run is not None:
            self._interrupted = why_interrupted(self.run)
        self._watch.start()
        self._tell()
        if self._followed:
            self._followed = False
            self.finished.emit(self._state)

    def _see_whether_it_goes_on(self) -> None:
        now = _stamp(self.run)
        if now is not None and now != self._stamp:
            self._read_on()

    # From the socket

    def _connect(self) -> bool:
        if self.run is None:
            return False
        try:
            self._connection = RunConnection(self.run, from_n=self.data.last_n + 1, patience_s=0)
        except OSError:
            return False
        self._patience_ms = _START_POLL_MS
        self._notifier = QSocketNotifier(self._connection.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._receive)
        if self._asked and self._asked != self.data.asked:
            self._send_asked()
        return True

    def _receive(self) -> None:
        if self._connection is None:
            return
        messages = self._connection.receive()
        complete = all(self._take_message(message) for message in messages)
        if self.data.finished is not None and any(isinstance(message, RunFinished) for message in messages):
            self._state = self.data.finished.outcome
            self._stamp = _stamp(self.run)
            self._end()
        elif self._connection.closed and self._connection.reason:
            self._sent_away(self._connection.reason)
        elif self._connection.closed or not complete:
            self._broken()
        elif messages:
            self._changed()

    def _take_message(self, message: ServerMessage) -> bool:
        """Takes in an event; False where some before it are missing that the file may have."""
        if isinstance(message, Welcome):
            self._refusal = ""
        if isinstance(message, Welcome | Goodbye):
            return True
        if message.n > self.data.last_n + 1 and self._gap_after != self.data.last_n:
            self._gap_after = self.data.last_n
            return False
        self.data.apply(message)
        return True

    def _send(self, command: Command) -> None:
        """Sends it where somebody runs the run, aside, since a supervisor that was stopped takes its time."""
        if self.run is not None:
            run = self.run
            in_background(partial(send, run, command), self, partial(self._sent, run), partial(self._not_sent, run))

    def _sent(self, run: RunFolder, heard: bool) -> None:
        if not heard:
            self.message.emit(silent(run), "warning")

    def _not_sent(self, run: RunFolder, error: Exception) -> None:
        if not isinstance(error, OSError):
            raise error
        if not isinstance(error, NotRunning):  # of one that has ended its log tells, and one that begins is asked again
            self.message.emit(str(error), "warning")
        if self.run is run and self._connection is not None:
            self._broken()

    def _sent_away(self, reason: str) -> None:
        """The supervisor says why it does not want this client, which follows the file until it is let in again."""
        self._refusal = reason
        self._disconnect()
        self._read_for(SLICE_S)
        self._look_again.start(_RETRY_MS)
        self._changed()

    def _broken(self) -> None:
        """The supervisor has gone, has shut this client out or left some events away: the file tells the rest."""
        self._disconnect()
        self._reader.start()

    def _disconnect(self) -> None:
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # To the views

    def _changed(self) -> None:
        if not self._teller.isActive():
            since_ms = 1000 * (time.monotonic() - self._told_at)
            self._teller.start(max(0, int(self._told_every_ms - since_ms)))

    def _tell(self) -> None:
        self._teller.stop()
        self._told_at = time.monotonic()
        self._told_every_ms = _TOLD_RARER * self._told_every_ms if self.loading else _TOLD_EVERY_MS
        self.changed.emit()


def _stamp(run: RunFolder | None) -> tuple[int, int] | None:
    """Changes whenever somebody begins to run `run` or it says something; None where it is not there any more."""
    if run is None:
        return None
    try:
        said = run.events_file.stat().st_size
    except OSError:
        return None
    return _changed_ns(run.supervisor_file) + _changed_ns(run.path / FILE), said


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
