"""One run as the window knows it: read from its log, then followed live."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, QSocketNotifier, QTimer, Signal

from engine.contract.connection import RunConnection, ServerMessage
from engine.contract.protocol import Adjust, Command, Goodbye, Stop, Welcome
from engine.contract.runs import RunFolder, State
from gui.run.data import RunData
from gui.run.reading import LogReader
from gui.run.status import RunStatus, status_of

SLICE_S = 0.012
"""How long the log is read without letting the window do anything else."""

_TOLD_EVERY_MS = 100
_TOLD_RARER = 1.5
"""While a log is read, each pause between two drawings of its growing curves is so many times the one before, since
drawing takes time from reading."""

_START_POLL_MS = 20
_RETRY_MS = 500
_ENDED: tuple[State, ...] = ("completed", "stopped", "failed", "interrupted")


class RunStore(QObject):
    """Follows one run at a time. Views read `data` and `status` when told that something has changed.

    The past is read from the run's file in slices, then the supervisor is asked for what comes after it. Where
    the connection breaks, the file is read on, and the process table says what has become of the run.

    Signals:
        opened(): another run, or none, is shown; `data` is a new one.
        changed(): there is more in `data`, or another `status`; at most ten times a second.
        finished(str): the run that was being followed has ended, with its outcome.
    """

    opened = Signal()
    changed = Signal()
    finished = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.data = RunData()
        self.run: RunFolder | None = None
        self.loading = False
        self._state: State = "starting"
        self._stopping = False
        self._followed = False
        self._log: LogReader | None = None
        self._connection: RunConnection | None = None
        self._patience_ms = _START_POLL_MS
        self._gap_after = self._ended_at = -1
        self._notifier: QSocketNotifier | None = None
        self._reader = QTimer(self, interval=0)
        self._reader.timeout.connect(self._read_slice)
        self._look_again = QTimer(self, singleShot=True)
        self._look_again.timeout.connect(self._look)
        self._teller = QTimer(self, singleShot=True)
        self._teller.timeout.connect(self._tell)
        self._told_at = 0.0
        self._told_every_ms: float = _TOLD_EVERY_MS

    @property
    def status(self) -> RunStatus:
        if self.run is None:
            return RunStatus(text="Idle · nothing is running")
        return status_of(self.data, self._state, self._stopping)

    @property
    def active(self) -> bool:
        """Whether the open run is still going on."""
        return self.run is not None and self._state not in _ENDED

    def remind(self) -> None:
        """Has `changed` told again soon, to a view that takes in what there is piece by piece."""
        self._changed()

    def open(self, run: RunFolder) -> None:
        """Shows `run` from its beginning and follows it while it goes on."""
        self.close()
        self.run = run
        self.data = RunData()
        self._state = run.state()
        self._stopping = self._followed = False
        self._patience_ms, self._gap_after, self._ended_at = _START_POLL_MS, -1, -1
        self.loading = True
        self._told_every_ms = _TOLD_EVERY_MS
        self.opened.emit()
        self._changed()
        self._reader.start()

    def stop(self) -> None:
        """Asks the run to end after the step in hand."""
        if not self.active or self._stopping:
            return
        self._stopping = True
        self._send(Stop())
        self._changed()

    def use_loader_workers(self, count: int) -> None:
        """Asks the run to read pictures with so many threads in each worker from now on."""
        if self.active and not self._stopping:
            self._send(Adjust(loader_workers=count))

    def close(self) -> None:
        """Lets go of the run, which goes on by itself, and shows none."""
        self._reader.stop()
        self._look_again.stop()
        self._teller.stop()
        self._disconnect()
        self._close_file()
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
        self._log = None

    # What has become of it

    def _look(self) -> None:
        """Once the file has been read to its end: follows the run on, or notes how it ended."""
        if self.run is None:
            return
        before, self._state = self._state, self.run.state()
        if self._state in _ENDED:
            if self.data.finished is not None or self._ended_at == self.data.last_n:
                self._end()
            else:
                self._ended_at = self.data.last_n
                self._reader.start()  # its last lines may have come since the file was read
            return
        self._followed = True
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
        self._tell()
        if self._followed:
            self._followed = False
            self.finished.emit(self._state)

    # From the socket

    def _connect(self) -> bool:
        if self.run is None:
            return False
        try:
            self._connection = RunConnection(self.run, from_n=self.data.last_n + 1)
        except OSError:
            return False
        self._patience_ms = _START_POLL_MS
        self._notifier = QSocketNotifier(self._connection.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._receive)
        if self._stopping:
            self._send(Stop())
        return True

    def _receive(self) -> None:
        if self._connection is None:
            return
        messages = self._connection.receive()
        complete = all(self._take_message(message) for message in messages)
        if self.data.finished is not None:
            self._state = self.data.finished.outcome
            self._end()
        elif self._connection.closed or not complete:
            self._broken()
        elif messages:
            self._changed()

    def _take_message(self, message: ServerMessage) -> bool:
        """Takes in an event; False where some before it are missing that the file may have."""
        if isinstance(message, Welcome | Goodbye):
            return True
        if message.n > self.data.last_n + 1 and self._gap_after != self.data.last_n:
            self._gap_after = self.data.last_n
            return False
        self.data.apply(message)
        return True

    def _send(self, command: Command) -> None:
        """Sends it where there is a connection."""
        try:
            if self._connection is not None:
                self._connection.send(command)
        except OSError:
            self._broken()

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
