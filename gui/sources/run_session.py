"""Session of the run on screen, which is read from its log and then followed live."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from functools import partial

from PySide6.QtCore import QObject, QSocketNotifier, QTimer, Signal

from engine.contract.events import RunFinished
from engine.contract.protocol import Adjust, Command, Goodbye, Pause, SaveElsewhere, Stop, Welcome
from engine.runs.connection import NotRunning, RunConnection, ServerMessage, silent
from engine.runs.folder import ENDED, RunFolder, State
from engine.runs.slurm import no_pause, send
from engine.runs.slurm_job import SlurmJob
from engine.system.plain_text import encodable
from gui.sources.background import Background, SingleFlight, ignore_os_error, in_background
from gui.sources.run_data import Asked, RunData
from gui.sources.run_queue import queue_message
from gui.sources.run_reader import Poll, RunReader, Stamp
from gui.sources.run_status import RunStatus, status_of
from gui.translation import tr

SLICE_S = 0.012
"""Seconds for which the log is read at a time. The window takes about as long to process the events."""

_GRACE_S = 0.02
"""Seconds to wait for the first read, so that a fast disk makes the state known as soon as a run is opened."""
_NOTIFY_MS = 100
_NOTIFY_BACKOFF = 1.5
"""Factor by which the pause between redraws grows while a log is loading, because drawing slows down reading."""
_FIRST_RETRY_MS = 20
_RETRY_BACKOFF = 1.2
_RETRY_MS = 500
_START_S = 5.0
"""Seconds that a run may take from its start until its supervisor file exists."""
_WATCH_MS = 200
"""Milliseconds between checks if an ended run has been resumed."""
_PARTING_S = 1.0
"""Seconds to wait for unanswered commands when the program exits."""


class Stage(Enum):
    """Stage of a session."""

    CLOSED = auto()
    READING = auto()
    """Reads the log to its end."""
    RETRYING = auto()
    """Reads the log repeatedly until the supervisor of the active run accepts a connection."""
    LIVE = auto()
    """Receives events from the supervisor."""
    ENDED = auto()
    """Watches the files of an ended run, which may be resumed."""


_NEXT: dict[Stage, set[Stage]] = {
    Stage.CLOSED: {Stage.READING},
    Stage.READING: {Stage.READING, Stage.RETRYING, Stage.LIVE, Stage.ENDED, Stage.CLOSED},
    Stage.RETRYING: {Stage.READING, Stage.RETRYING, Stage.LIVE, Stage.ENDED, Stage.CLOSED},
    Stage.LIVE: {Stage.READING, Stage.RETRYING, Stage.ENDED, Stage.CLOSED},
    Stage.ENDED: {Stage.READING, Stage.CLOSED},
}


class RunSession(QObject):
    """Session that follows one run at a time. Views read `data` and `status` after each signal.

    A worker thread reads the log in slices; then the supervisor sends the events after it. If the connection breaks, reading of the log continues, and the process table shows if the run is alive.

    Signals:
        opened(): another run or none is on screen; `data` is a new object.
        changed(): `data` has grown or `status` changed; at most ten times a second.
        finished(str): the followed run has ended with this outcome.
        message(str, str): a sentence about a command that the supervisor did not accept, and its severity.
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
        self._stage = Stage.CLOSED
        self._reader: RunReader | None = None
        self._flight: SingleFlight[Poll] | None = None
        self._poll_timer = QTimer(self, singleShot=True)
        self._poll_timer.timeout.connect(self._poll)
        self._notify_timer = QTimer(self, singleShot=True)
        self._notify_timer.timeout.connect(self._notify)
        self._notified_at = 0.0
        self._notify_ms: float = _NOTIFY_MS
        self._gpu_titles: Mapping[str, str] = {}
        self._connection: RunConnection | None = None
        self._notifier: QSocketNotifier | None = None
        self._reset()

    def _reset(self) -> None:
        """Clear all state of the previous run."""
        self.data = RunData()
        self._state: State | None = None
        self._stamp: Stamp | None = None
        self._starting: tuple[float, Stamp | None] = (0.0, None)
        self._requested: Asked = ""
        self._rejection = self._interruption = ""
        self._followed = self._elsewhere = False
        self._slurm: SlurmJob | None = None
        self._names: dict[str, str] = {}
        self._retry_ms = _FIRST_RETRY_MS
        self._gap_after = -1
        self._notify_ms = _NOTIFY_MS

    @property
    def status(self) -> RunStatus:
        if self.run is None:
            return RunStatus(text=tr("Idle · nothing is running"))
        state = self._state or "starting"
        waiting, started = self.data.waiting, self.data.started
        words = {"interrupted": self._interruption} if self._interruption else {}
        if waiting is not None and started is not None:
            name_of: Callable[[str], str] = lambda run_id: self._names.get(run_id, run_id)  # noqa: E731
            words["in_line"] = queue_message(waiting, started.job.parallel.devices, self._gpu_titles, name_of)
        elif state == "waiting" and self._slurm is not None:
            words["in_line"] = tr("SLURM {words}").format(words=self._slurm.words)
        status = status_of(self.data, state, self._requested, **words)
        if not self._rejection or not self.active:
            return status
        return replace(status, text=f"{status.text} · following its log ({self._rejection})")

    @property
    def active(self) -> bool:
        """True while the open run has not ended."""
        return self.run is not None and self._state not in ENDED

    @property
    def up_to_date(self) -> bool:
        """True if all changes have been reported."""
        return not self._notify_timer.isActive()

    def name_gpus(self, titles: Mapping[str, str]) -> None:
        """Set the titles of this machine's GPUs, by UUID."""
        self._gpu_titles = titles

    def request_update(self) -> None:
        """Emit `changed` once more soon, for views that load incrementally."""
        self._notify_soon()

    def open(self, run: RunFolder) -> None:
        """Show `run` from its beginning and follow it. If `run` is open, only poll it."""
        if self.run is not None and self.run.path == run.path:
            self._read_on()
            return
        self.close()
        self._reset()
        self.run, self.loading = run, True
        self._reader = RunReader(run)
        discard = partial(_discard, self._reader)
        self._flight = SingleFlight(self, self._next_poll, self._on_polled, self._on_poll_failed, discard)
        self._enter(Stage.READING)
        self._flight.request()
        self._flight.wait(_GRACE_S)
        self.opened.emit()
        self._notify_soon()

    def mark_starting(self) -> None:
        """Show the open run as starting until it has a supervisor. Call this when it has just been started."""
        if self.run is not None:
            self._starting = time.monotonic() + _START_S, self._stamp
            self._read_on()

    def stop(self) -> None:
        """Ask the run to end after the current step, or to leave the queue."""
        self._request("stop")

    def pause(self) -> None:
        """Ask the run to save and release its devices after the current step."""
        if self.run is not None and self._elsewhere:
            self.message.emit(no_pause(self.run), "warning")
        else:
            self._request("pause")

    def use_loader_workers(self, count: int) -> None:
        """Ask the run to read images with `count` threads in each worker."""
        if self.active and not self._requested:
            self._send(Adjust(loader_workers=count))

    def save_elsewhere(self, folder: str) -> None:
        """Ask the run to save its last state in `folder` because the disk of its own folder is full."""
        if self.active:
            self._send(SaveElsewhere(folder=encodable(folder)))

    def finish(self) -> None:
        """Wait for commands that are being sent because the program exits."""
        for call in self.findChildren(Background):
            call.finish(_PARTING_S)

    def close(self) -> None:
        """Close the run without stopping it."""
        had_run, self.run = self.run is not None, None
        self._poll_timer.stop()
        self._notify_timer.stop()
        self._disconnect()
        if self._stage is not Stage.CLOSED:
            self._enter(Stage.CLOSED)
        if self._flight is not None and self._reader is not None:
            self._flight.finish(_GRACE_S)
            if not self._flight.abandoned:
                self._reader.close()
        self._reader = self._flight = None
        self.data = RunData()
        self.loading = False
        if had_run:
            self.opened.emit()
            self.changed.emit()

    def _enter(self, stage: Stage) -> None:
        assert stage in _NEXT[self._stage], f"{self._stage} -> {stage}"
        self._stage = stage

    # From the folder

    def _poll(self) -> None:
        if self._flight is not None:
            self._flight.request()

    def _read_on(self) -> None:
        """Read the new part of the log and the state on a worker thread."""
        if self._stage is not Stage.LIVE:
            self._enter(Stage.READING)
            self._poll_timer.stop()
            self._poll()

    def _next_poll(self) -> Callable[[], Poll] | None:
        reader = self._reader
        if reader is None:
            return None
        if self._stage is Stage.ENDED:
            return reader.glance
        if self._stage is Stage.LIVE:
            behind = self.data.waiting.behind if self.data.waiting is not None else ()
            return partial(reader.read_names, behind)
        return partial(reader.read, SLICE_S if self._state is not None else 0.0, self.data.last_n)

    def _on_polled(self, poll: Poll) -> None:
        """Apply a poll to the session, and poll again or finish, depending on the session's stage.

        A closed session discards the poll, a live one only notes changed names, and an ended one watches for a new
        execution. While the log is being read, more events lead to the next poll, and the end of the log to the next stage.
        """
        if self._stage is Stage.CLOSED and self._reader is not None:
            _discard(self._reader, poll)
        elif self._stage is Stage.LIVE:
            self._names |= poll.names
            self._notify_soon()
        elif self._stage is Stage.ENDED:
            self._watch(poll.stamp)
        elif poll.more:
            if poll.state is not None:
                self._state, self._slurm, self._elsewhere = poll.state, poll.slurm, poll.elsewhere
            self._apply(poll)
            self._poll()
        elif poll.state is None:  # requested at an earlier stage
            self._poll()
        else:
            self._apply(poll)
            self._on_log_end(poll)

    def _on_poll_failed(self, error: Exception) -> None:
        self._poll_timer.start(_RETRY_MS)
        ignore_os_error(error)

    def _apply(self, poll: Poll) -> None:
        if poll.events:
            self.data.apply_all(poll.events)
            self._notify_soon()

    def _watch(self, stamp: Stamp | None) -> None:
        """Continue reading if an ended run has been resumed."""
        if self._stamp is not None and stamp not in (None, self._stamp):
            self._read_on()
            return
        self._stamp = self._stamp or stamp
        self._poll_timer.start(_WATCH_MS)

    def _on_log_end(self, poll: Poll) -> None:
        """Follow the run if it is active; otherwise record how it ended."""
        before, state = self._state, poll.state or "starting"
        deadline, unchanged = self._starting
        if state in ENDED and time.monotonic() < deadline and poll.stamp == unchanged:
            state = "starting"
        self._state, self._stamp, self._slurm = state, poll.stamp, poll.slurm
        self._elsewhere, self._interruption = poll.elsewhere, poll.interruption
        if self.loading:
            self.loading = False
            if state not in ENDED:
                self._notify()  # the pause until the next redraw may be long
        if state in ENDED:
            self._end()
            return
        if before in ENDED:
            self._requested, self._retry_ms = "", _FIRST_RETRY_MS
        self._followed = True
        if poll.connection is not None:
            self._attach(poll.connection)
        else:
            self._enter(Stage.RETRYING)
            self._poll_timer.start(self._retry_ms)
            self._retry_ms = min(int(_RETRY_BACKOFF * self._retry_ms), _RETRY_MS)
        if state != before:
            self._notify_soon()

    def _end(self) -> None:
        self._disconnect()
        self._enter(Stage.ENDED)
        if self._reader is not None and self._flight is not None and not self._flight.running:
            self._reader.close()
        self._poll_timer.start(_WATCH_MS)
        self._notify()
        if self._followed and self._state is not None:
            self._followed = False
            self.finished.emit(self._state)

    # From the supervisor

    def _attach(self, connection: RunConnection) -> None:
        self._enter(Stage.LIVE)
        self._connection = connection
        self._retry_ms = _FIRST_RETRY_MS
        self._notifier = QSocketNotifier(connection.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._receive)
        self._request_names()
        if self._requested and self._requested != self.data.asked:
            self._send_requested()

    def _receive(self) -> None:
        if self._connection is None:
            return
        messages = self._connection.receive()
        complete = all(self._take_message(message) for message in messages)
        if self.data.finished is not None and any(isinstance(message, RunFinished) for message in messages):
            self._state, self._stamp = self.data.finished.outcome, None
            self._end()
        elif self._connection.closed and self._connection.reason:
            self._on_rejected(self._connection.reason)
        elif self._connection.closed or not complete:
            self._disconnect()
            self._enter(Stage.READING)
            self._poll()
        elif messages:
            self._request_names()
            self._notify_soon()

    def _take_message(self, message: ServerMessage) -> bool:
        """Apply an event. Return False if earlier events are missing, which the log may contain."""
        if isinstance(message, Welcome):
            self._rejection = ""
        if isinstance(message, Welcome | Goodbye):
            return True
        if message.n > self.data.last_n + 1 and self._gap_after != self.data.last_n:
            self._gap_after = self.data.last_n
            return False
        self.data.apply(message)
        return True

    def _request_names(self) -> None:
        if self.data.waiting is not None and not self._names.keys() >= set(self.data.waiting.behind):
            self._poll()

    def _on_rejected(self, reason: str) -> None:
        """Follow the run by its log until the supervisor accepts this client."""
        self._rejection = reason
        self._disconnect()
        self._enter(Stage.RETRYING)
        self._poll_timer.start(_RETRY_MS)
        self._notify_soon()

    def _disconnect(self) -> None:
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Commands

    def _request(self, command: Asked) -> None:
        if self.active and self._requested not in (command, "stop"):
            self._requested = command
            self._send_requested()
            self._notify_soon()

    def _send_requested(self) -> None:
        self._send(Stop() if self._requested == "stop" else Pause())

    def _send(self, command: Command) -> None:
        """Send a command on a thread, because a suspended supervisor answers late."""
        if self.run is not None:
            run = self.run
            in_background(partial(_deliver, run, command), self, self._on_sent, partial(self._on_not_sent, run))

    def _on_sent(self, problem: str) -> None:
        if problem:
            self.message.emit(problem, "warning")

    def _on_not_sent(self, run: RunFolder, error: Exception) -> None:
        ignore_os_error(error)
        if not isinstance(error, NotRunning):  # an ended run has said so in its log, a starting one is asked again
            self.message.emit(str(error), "warning")
        if self.run is run and self._stage is Stage.LIVE:
            self._disconnect()
            self._enter(Stage.READING)
            self._poll()

    # To the views

    def _notify_soon(self) -> None:
        if not self._notify_timer.isActive():
            since_ms = 1000 * (time.monotonic() - self._notified_at)
            self._notify_timer.start(max(0, int(self._notify_ms - since_ms)))

    def _notify(self) -> None:
        self._notify_timer.stop()
        self._notified_at = time.monotonic()
        self._notify_ms = _NOTIFY_BACKOFF * self._notify_ms if self.loading else _NOTIFY_MS
        self.changed.emit()


def _deliver(run: RunFolder, command: Command) -> str:
    """Send `command` to the run's supervisor; return a message if it doesn't answer. Raises NotRunning, OSError."""
    return "" if send(run, command) else silent(run)


def _discard(reader: RunReader, poll: Poll) -> None:
    """Close the files of a poll whose session was closed before it returned."""
    reader.close()
    if poll.connection is not None:
        poll.connection.close()
