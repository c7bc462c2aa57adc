"""Session of the open run, which is read from its log and then followed live."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal

from engine.contract.events import RunFinished
from engine.contract.job import Job
from engine.contract.protocol import Adjust, Goodbye, SaveElsewhere, Welcome
from engine.runs.connection import RunConnection, ServerMessage
from engine.runs.folder import ENDED, RunFolder
from engine.runs.slurm import explain_no_pause
from engine.system.plain_text import make_encodable
from gui.sources.background import SingleFlight, ignore_os_error
from gui.sources.run_data import RunData
from gui.sources.run_facts import NEXT_STAGES, RunFacts, SessionStage
from gui.sources.run_link import LiveConnection, RunCommands
from gui.sources.run_reader import FolderVersion, PollResult, RunReader
from gui.sources.run_status import RunStatus
from gui.sources.update_timer import UpdateTimer
from gui.translation import tr

SLICE_S = 0.012
"""Maximum seconds of a read of the log. The window takes about as long to process the events."""

_GRACE_S = 0.02
"""Seconds to wait for the first read, so that the state of a run on a fast disk is known immediately."""
_FIRST_RETRY_MS = 20
_RETRY_BACKOFF = 1.2
_RETRY_MS = 500
_START_S = 5.0
"""Maximum seconds between the start of a run and the creation of its supervisor file."""
_USERS_MS = 2000
"""Milliseconds between reads of what uses the devices that a queued run waits for.

The run logs no event if a run before it is renamed, or ends while its model is in use.
"""
_WATCH_MS = 200
"""Milliseconds between checks whether an ended run has been resumed."""


class RunSession(QObject):
    """Session that follows one run at a time. Views read `data` and `status` after each signal.

    A worker thread reads the log in slices. Then the supervisor sends the later events. If the connection breaks, the
    session continues to read the log, and finds out from the process table if the run is alive.

    Signals:
        opened(): another run, or none, is open. `data` is a new object.
        changed(): `data` has grown or `status` has changed. Emitted at most ten times a second.
        finished(str): the followed run has ended with this outcome.
        message(str, str): a sentence about a command that the supervisor didn't accept, and its severity.
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
        self._stage = SessionStage.CLOSED
        self._reader: RunReader | None = None
        self._flight: SingleFlight[PollResult] | None = None  # reads on a worker thread
        self._poll_timer = QTimer(self, singleShot=True)
        self._poll_timer.timeout.connect(self._poll)
        self._updates = UpdateTimer(self)
        self._updates.due.connect(self.changed)
        self._commands = RunCommands(self)
        self._commands.message.connect(self.message)
        self._commands.failed.connect(self._on_command_failed)
        self._live = LiveConnection(self)
        self._live.readable.connect(self._receive)
        self._gpu_titles: Mapping[str, str] = {}
        self._reset()  # sets the state that belongs to one run

    def _reset(self) -> None:
        """Forget the data, facts and pending commands of the previous run."""
        self.data = RunData()
        self._facts = RunFacts()
        # Until this time, an unchanged run folder with an ended state counts as starting (see `mark_starting`).
        self._start_deadline = 0.0
        self._version_at_start: FolderVersion | None = None
        self._commands.open(self.run)
        self._should_emit_finished = False  # True once the run has been active while it was open
        self._retry_ms = _FIRST_RETRY_MS
        self._gap_after = -1  # number of the event before a gap that the log was last searched for
        self._updates.set_loading(False)

    @property
    def status(self) -> RunStatus:
        """Status of the open run, including a pending request to pause or stop it."""
        if self.run is None:
            return RunStatus(text=tr("Idle · nothing is running"))
        return self._facts.status(self.data, self._commands.requested, self._gpu_titles)

    @property
    def job(self) -> Job | None:
        """Return the job of the open run, or None until it has been read."""
        return self.data.started.job if self.data.started is not None else self._facts.job

    @property
    def active(self) -> bool:
        """True while the open run has not ended."""
        return self.run is not None and self._facts.state not in ENDED

    def name_gpus(self, titles: Mapping[str, str]) -> None:
        """Set the titles of this machine's GPUs, by UUID."""
        self._gpu_titles = titles

    def request_update(self) -> None:
        """Emit `changed` once more soon, for views that load incrementally."""
        self._updates.schedule()

    def open(self, run: RunFolder) -> None:
        """Open `run`, read it from the beginning and follow it. If it is already open, only poll it."""
        if self.run is not None and self.run.path == run.path:
            self._continue_reading()
            return
        self._stop_following(0.0)
        self.run = run
        self._reset()
        self._set_loading(True)
        self._reader = RunReader(run)
        discard = partial(_discard, self._reader)
        self._flight = SingleFlight(self, self._next_poll, self._on_polled, self._on_poll_failed, discard)
        self._set_stage(SessionStage.READING)
        self._flight.request()
        self._flight.wait(_GRACE_S)
        self.opened.emit()
        self._updates.schedule()

    def mark_starting(self) -> None:
        """Show the open run as "starting" until it has a supervisor. Called just after it was started."""
        if self.run is not None:
            self._start_deadline, self._version_at_start = time.monotonic() + _START_S, self._facts.version
            self._continue_reading()

    def stop(self) -> None:
        """Ask the run to end after the current step, or to leave the queue."""
        if self.active and self._commands.request("stop"):
            self._updates.schedule()

    def pause(self) -> None:
        """Ask the run to save its state and release its devices after the current step."""
        if self.run is not None and self._facts.is_remote:
            self.message.emit(explain_no_pause(self.run), "warning")
        elif self.active and self._commands.request("pause"):
            self._updates.schedule()

    def use_loader_workers(self, count: int) -> None:
        """Ask the run to load images with `count` threads per worker."""
        if self.active and not self._commands.requested:
            self._commands.send(Adjust(loader_workers=count))

    def save_elsewhere(self, folder: str) -> None:
        """Ask the run to save its last state in `folder`, because the disk with its own folder is full."""
        if self.active:
            self._commands.send(SaveElsewhere(folder=make_encodable(folder)))

    def finish(self) -> None:
        """Wait until pending commands have been sent, when the program exits."""
        self._commands.finish()

    def close(self) -> None:
        """Stop following the run, which continues."""
        had_run, self.run = self.run is not None, None
        self._stop_following(_GRACE_S)
        self.data = RunData()
        self._set_loading(False)
        if had_run:
            self.opened.emit()
            self.changed.emit()

    def _stop_following(self, within_s: float) -> None:
        """Stop following the run.

        Wait up to `within_s` for the current read. If it takes longer, its result is discarded.
        """
        self._poll_timer.stop()
        self._updates.stop()
        self._live.close()
        if self._stage is not SessionStage.CLOSED:
            self._set_stage(SessionStage.CLOSED)
        if self._flight is not None and self._reader is not None:
            self._flight.finish(within_s)
            if not self._flight.abandoned:  # otherwise, a thread still uses the reader, and `_discard` closes it
                self._reader.close()
        self._reader = self._flight = None

    def _set_loading(self, is_loading: bool) -> None:
        """Set whether the log is being read for the first time, which makes updates less frequent."""
        self.loading = is_loading
        self._updates.set_loading(is_loading)

    def _set_stage(self, stage: SessionStage) -> None:
        """Enter a stage. A transition that isn't in `NEXT_STAGES` is a bug."""
        assert stage in NEXT_STAGES[self._stage], f"{self._stage} -> {stage}"
        self._stage = stage

    # From the folder

    def _poll(self) -> None:
        """Start the read that the session's stage requires, or schedule it after the current read."""
        if self._flight is not None:
            self._flight.request()

    def _continue_reading(self) -> None:
        """Read the run's state and new log events on a worker thread, unless the supervisor sends the events."""
        if self._stage is not SessionStage.LIVE:
            self._set_stage(SessionStage.READING)
            self._poll_timer.stop()
            self._poll()

    def _next_poll(self) -> Callable[[], PollResult] | None:
        """Return the function with which a thread reads next, depending on the stage, or None while no run is open.

        The first read of a run gets only its state, so that this is visible before the log has been read.
        """
        reader = self._reader
        if reader is None:
            return None
        if self._stage is SessionStage.ENDED:
            return reader.poll_version
        if self._stage is SessionStage.LIVE:
            behind = self.data.waiting.behind if self.data.waiting is not None else ()
            return partial(reader.read_device_users, behind)
        return partial(reader.read, SLICE_S if self._facts.state is not None else 0.0, self.data.last_number)

    def _on_polled(self, poll: PollResult) -> None:
        """Use the result of a read, depending on the session's stage.

        A closed session discards it. A live one only updates the users of devices, and an ended one checks for a new
        execution. While the log is being read, new events lead to another read, and the end of the log to the next
        stage.
        """
        if self._stage is SessionStage.CLOSED and self._reader is not None:
            _discard(self._reader, poll)
        elif self._stage is SessionStage.LIVE:
            self._show_users(poll.users)
        elif self._stage is SessionStage.ENDED:
            self._check_for_resume(poll.version)
        elif poll.is_partial:
            if poll.state is not None:  # the first read, which gets only the state
                self._facts.job = poll.job
                self._facts.state, self._facts.slurm, self._facts.is_remote = poll.state, poll.slurm, poll.is_remote
                self._should_emit_finished = self.active
            self._apply_events(poll)
            self._poll()
        elif poll.state is None:  # a read of the version or the users, requested at an earlier stage
            self._poll()
        else:
            self._apply_events(poll)
            self._on_log_end(poll)

    def _on_poll_failed(self, error: Exception) -> None:
        """Read the run's folder again after a pause. Errors other than OSError are raised."""
        self._poll_timer.start(_RETRY_MS)
        ignore_os_error(error)

    def _apply_events(self, poll: PollResult) -> None:
        """Add the events of a read to the data, and schedule an update of the views."""
        if poll.events:
            self.data.apply_all(poll.events)
            self._updates.schedule()

    def _check_for_resume(self, version: FolderVersion | None) -> None:
        """Read the log again if `version` shows that an ended run has been resumed. Otherwise, check later."""
        if self._facts.version is None:
            self._facts.version = version  # the first version after the end of a live run
        elif version is not None and version != self._facts.version:
            self._continue_reading()
            return
        self._poll_timer.start(_WATCH_MS)

    def _on_log_end(self, poll: PollResult) -> None:
        """Follow the run by its supervisor if it is active. Otherwise, record how it ended."""
        previous_state, state = self._facts.state, poll.state or "starting"
        # The files of a run that is being resumed are unchanged until its supervisor starts.
        is_unchanged = poll.version == self._version_at_start
        if state in ENDED and time.monotonic() < self._start_deadline and is_unchanged:
            state = "starting"
        self._facts.state, self._facts.version, self._facts.slurm = state, poll.version, poll.slurm
        self._facts.is_remote, self._facts.interruption = poll.is_remote, poll.interruption
        if self.loading:
            self._set_loading(False)
            if state not in ENDED:
                self._updates.notify()  # the pause until the next redraw may be long
        if state in ENDED:
            self._end()
            return
        if previous_state in ENDED:  # the run has been resumed
            self._commands.requested, self._retry_ms = "", _FIRST_RETRY_MS
        self._should_emit_finished = True
        if poll.connection is not None:
            self._receive_from(poll.connection)
        else:
            self._set_stage(SessionStage.RETRYING)
            self._poll_timer.start(self._retry_ms)
            self._retry_ms = min(int(_RETRY_BACKOFF * self._retry_ms), _RETRY_MS)
        if state != previous_state:
            self._updates.schedule()

    def _end(self) -> None:
        """Show the end of the run, and watch for another execution. Emit `finished` if the run was active before."""
        self._live.close()
        self._set_stage(SessionStage.ENDED)
        # A running read still uses the reader, which then stays open until the session closes.
        if self._reader is not None and self._flight is not None and not self._flight.running:
            self._reader.close()
        self._poll_timer.start(_WATCH_MS)
        self._updates.notify()
        if self._should_emit_finished and self._facts.state is not None:
            self._should_emit_finished = False
            self.finished.emit(self._facts.state)

    # From the supervisor

    def _receive_from(self, connection: RunConnection) -> None:
        """Follow the run by the messages of its supervisor, and repeat a request to pause or stop that isn't in the log."""
        self._set_stage(SessionStage.LIVE)
        self._live.open(connection)
        self._retry_ms = _FIRST_RETRY_MS
        self._request_users()
        # A supervisor that was starting may have missed the request.
        if self._commands.requested and self._commands.requested != self.data.end_request:
            self._commands.repeat()

    def _receive(self) -> None:
        """Apply the supervisor's messages. Then end with the run, or read the log if events are missing."""
        if not self._live.is_open:
            return
        messages = self._live.receive()
        has_all_events = all(self._apply_message(message) for message in messages)  # stops at a gap in the numbers
        if self.data.finished is not None and any(isinstance(message, RunFinished) for message in messages):
            # The supervisor may still write files, so the next poll's version is the first to compare with.
            self._facts.state, self._facts.version = self.data.finished.outcome, None
            self._end()
        elif self._live.rejection:
            self._on_rejected(self._live.rejection)
        elif self._live.is_lost or not has_all_events:
            self._return_to_log()
        elif messages:
            self._request_users()
            self._updates.schedule()

    def _apply_message(self, message: ServerMessage) -> bool:
        """Apply an event. Return False if earlier events are missing, which the log may contain."""
        if isinstance(message, Welcome):
            self._facts.rejection = ""
        if isinstance(message, Welcome | Goodbye):
            return True
        has_gap = message.n > self.data.last_number + 1
        if has_gap and self._gap_after != self.data.last_number:  # the log doesn't contain events that were lost
            self._gap_after = self.data.last_number
            return False
        self.data.apply(message)
        return True

    def _request_users(self) -> None:
        """Read again which runs use the devices that the open run waits for, because these may change."""
        if self.data.waiting is not None and self.data.waiting.behind:
            self._poll()

    def _show_users(self, users: Mapping[str, str]) -> None:
        """Show which runs use the devices that the open run waits for, and schedule the next read of these runs."""
        if users != self._facts.users:
            self._facts.users = users
            self._updates.schedule()
        if users:
            self._poll_timer.start(_USERS_MS)

    def _on_rejected(self, reason: str) -> None:
        """Show the `reason` of the rejection, and follow the run by its log until the supervisor accepts this client."""
        self._facts.rejection = reason
        self._live.close()
        self._set_stage(SessionStage.RETRYING)
        self._poll_timer.start(_RETRY_MS)
        self._updates.schedule()

    def _on_command_failed(self, run: RunFolder) -> None:
        """Read the log to find out if the run has ended, because its supervisor was not reached."""
        if self.run is run and self._stage is SessionStage.LIVE:
            self._return_to_log()

    def _return_to_log(self) -> None:
        """Close the connection to the supervisor, and read the events that it hasn't sent from the log."""
        self._live.close()
        self._set_stage(SessionStage.READING)
        self._poll()


def _discard(reader: RunReader, poll: PollResult) -> None:
    """Close the log and the connection of a poll that returned after its session had been closed."""
    reader.close()
    if poll.connection is not None:
        poll.connection.close()
