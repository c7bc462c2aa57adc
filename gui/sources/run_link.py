"""Connection between a session and the supervisor of its run: live messages and commands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QObject, QSocketNotifier, Signal

from engine.contract.protocol import Command, Pause, Stop
from engine.runs.connection import NotRunning, RunConnection, ServerMessage, describe_silence
from engine.runs.folder import RunFolder
from engine.runs.slurm import send
from gui.sources.background import Background, ignore_os_error, in_background
from gui.sources.run_data import EndRequest

_PARTING_S = 1.0
"""Maximum seconds to wait for unanswered commands when the program exits."""


class LiveConnection(QObject):
    """Connection to a supervisor whose messages arrive through Qt's event loop.

    Signals:
        readable(): messages can be received.
    """

    readable = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._connection: RunConnection | None = None
        self._notifier: QSocketNotifier | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def is_lost(self) -> bool:
        """Return True if the supervisor closed the connection."""
        return self._connection is not None and self._connection.closed

    @property
    def rejection(self) -> str:
        """Reason why the supervisor closed the connection, or "" if it gave none."""
        return self._connection.reason if self._connection is not None and self._connection.closed else ""

    def open(self, connection: RunConnection) -> None:
        """Receive messages from `connection` until `close` is called."""
        self._connection = connection
        self._notifier = QSocketNotifier(connection.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self.readable)

    def receive(self) -> Sequence[ServerMessage]:
        """Return the messages that have arrived."""
        return self._connection.receive() if self._connection is not None else ()

    def close(self) -> None:
        """Close the connection, if one is open, and stop waiting for messages."""
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class RunCommands(QObject):
    """Commands to one run at a time, which are sent on worker threads because a suspended supervisor may not respond.

    Attributes:
        requested: Pending request to pause or stop the run.

    Signals:
        message(str, str): a sentence about a command that the supervisor didn't accept, and its severity.
        failed(RunFolder): a command didn't reach the run's supervisor.
    """

    message = Signal(str, str)
    failed = Signal(object)

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self.requested: EndRequest = ""

    def open(self, run: RunFolder | None) -> None:
        """Send later commands to `run` and forget pending requests."""
        self._run, self.requested = run, ""

    def request(self, command: EndRequest) -> bool:
        """Request to pause or stop the run. Return False if the same request, or a stop, is pending."""
        if self.requested in (command, "stop"):
            return False
        self.requested = command
        self.repeat()
        return True

    def repeat(self) -> None:
        """Send the pending request again, because a supervisor that was starting may have missed it."""
        self.send(Stop() if self.requested == "stop" else Pause())

    def send(self, command: Command) -> None:
        """Send a command on a worker thread. Does nothing without a run."""
        if self._run is not None:
            run = self._run
            in_background(
                partial(_send_to_supervisor, run, command), self, self._on_sent, partial(self._on_not_sent, run)
            )

    def finish(self) -> None:
        """Wait until pending commands have been sent, when the program exits."""
        for call in self.findChildren(Background):
            call.finish(_PARTING_S)

    def _on_sent(self, problem: str) -> None:
        """Report that the supervisor hasn't answered, unless `problem` is ""."""
        if problem:
            self.message.emit(problem, "warning")

    def _on_not_sent(self, run: RunFolder, error: Exception) -> None:
        """Report an error, unless the supervisor isn't running, and emit `failed`."""
        ignore_os_error(error)  # raises any other error
        if not isinstance(error, NotRunning):  # an ended run has logged its end; a starting one gets the request again
            self.message.emit(str(error), "warning")
        self.failed.emit(run)


def _send_to_supervisor(run: RunFolder, command: Command) -> str:
    """Send `command` to the run's supervisor. Return "", or a message if it doesn't answer. Raises NotRunning, OSError."""
    return "" if send(run, command) else describe_silence(run)
