"""Connection of a client to a run's supervisor. The client receives events and sends commands."""

from __future__ import annotations

import select
import socket
import time
from types import TracebackType

from engine.contract.events import AnyEvent
from engine.contract.protocol import (
    COMMANDS_ONLY,
    ENCODE,
    SERVER_MESSAGE,
    Command,
    FrameError,
    Frames,
    Goodbye,
    Hello,
    Welcome,
)
from engine.runs.folder import RunFolder
from engine.system.decode_errors import NOT_DECODED

CONNECT_S = 2.0
ANSWER_S = 5.0
"""Maximum time in seconds to wait for a supervisor's answer.

Supervisors normally answer immediately, even if their workers hang.
"""
_MIN_CONNECT_S = 0.05
"""Minimum time in seconds to try to connect to a supervisor."""
_CHUNK_BYTES = 1 << 18
_RETRY_S = 0.01
_GOODBYE = b'{"type":"goodbye"'

ServerMessage = Welcome | Goodbye | AnyEvent


class NotRunning(ConnectionError):  # noqa: N818 - describes the state
    """Raised when a run has no running supervisor. The message gives the user the reason."""


class NotAnswering(ConnectionError):  # noqa: N818
    """Raised when a supervisor is suspended or refuses this client. The message gives the user the reason."""


class RunConnection:
    """Non-blocking connection to the supervisor of `run`.

    The supervisor sends the events from number `from_n` on. `fileno` becomes readable when `receive` has messages. When
    the supervisor closes the connection, `closed` becomes True, and `reason` is the reason that it has sent, or "".
    Gaps in the numbers are step metrics or device samples that were not sent to a slow client. The log file contains
    them. Connecting takes at most `timeout_s`. Raises NotRunning and NotAnswering.
    """

    def __init__(self, run: RunFolder, from_n: int = 1, *, timeout_s: float = CONNECT_S) -> None:
        supervisor = run.supervisor()
        if supervisor is None:
            raise NotRunning(f"{run.run_id} is not running (yet): it has no supervisor.json.")
        if not supervisor.alive():
            raise NotRunning(f"{run.run_id} is not running: its supervisor (pid {supervisor.pid}) has ended.")
        kind, _, address = supervisor.endpoint.partition(":")
        token = ""
        if kind == "tcp":
            address, _, token = address.partition(":")
        self._frames = Frames()
        self._lines: list[bytes] = []
        self.closed = False  # True once the supervisor has closed the connection
        self.reason = ""  # reason that it has sent, or the error
        self._socket = _connect(kind, address, run, timeout_s)
        try:
            self._socket.sendall(ENCODE.encode(Hello(from_n=from_n, token=token)) + b"\n")
        except OSError as error:
            self._socket.close()
            raise NotRunning(f"The supervisor of {run.run_id} does not listen: {error}.") from error
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive_lines(self) -> list[bytes]:
        """Return the lines of JSON that have arrived. Events are the same lines as in the log file.

        If the supervisor has closed the connection, or an error occurs, set `closed` and `reason`.
        """
        if self.closed:
            return []
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return []
        except OSError as error:
            self.closed, self.reason = True, str(error)
            return []
        if not data:
            self.closed = True
            return []
        try:
            lines = self._frames.feed(data)
        except FrameError as error:
            self.closed, self.reason = True, str(error)
            return []
        if lines and lines[-1].startswith(_GOODBYE):
            self.reason = _decode_goodbye_reason(lines[-1])
        return lines

    def receive(self) -> list[ServerMessage]:
        """Return the messages that have arrived. Messages that can't be decoded are skipped."""
        messages: list[ServerMessage] = []
        for line in self.receive_lines():
            try:
                message = SERVER_MESSAGE.decode(line)
            except NOT_DECODED:
                continue
            messages.append(message)
        return messages

    def send(self, message: Command) -> None:
        """Send a command to the supervisor. Raises OSError if the supervisor has exited."""
        self._socket.sendall(ENCODE.encode(message) + b"\n")

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def __enter__(self) -> RunConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def send(run: RunFolder, *commands: Command) -> Welcome | None:
    """Send commands to the supervisor of `run`.

    Returns its answer, or None if it does not answer within `ANSWER_S`. The connection does not count towards the limit
    on readers.

    Raises:
        NotRunning: The supervisor has ended.
        NotAnswering: It does not accept the connection in time, or refuses this client.
    """
    with RunConnection(run, COMMANDS_ONLY) as connection:
        try:
            for command in commands:
                connection.send(command)
        except OSError as error:
            raise NotRunning(f"The supervisor of {run.run_id} has just ended: {error}.") from error
        select.select([connection], [], [], ANSWER_S)
        for message in connection.receive():
            if isinstance(message, Goodbye):
                raise NotAnswering(f"The supervisor of {run.run_id} refuses: {message.reason}.")
            if isinstance(message, Welcome):
                return message
        if connection.closed:
            raise NotRunning(f"The supervisor of {run.run_id} has just ended.")
    return None


def describe_silence(run: RunFolder, predicate: str = f"has not answered for {ANSWER_S:.0f} s") -> str:
    """Return a message about a supervisor that is alive but does not respond.

    `predicate` completes the sentence "The supervisor …".
    """
    supervisor = run.supervisor()
    pid = supervisor.pid if supervisor is not None else 0
    return f"The supervisor of {run.run_id} (pid {pid}) {predicate}. If it was stopped, `kill -CONT {pid}` resumes it."


def _decode_goodbye_reason(line: bytes) -> str:
    """Return the reason in an encoded `Goodbye`, or "" if the message is invalid."""
    try:
        message = SERVER_MESSAGE.decode(line)
    except NOT_DECODED:
        return ""
    return message.reason if isinstance(message, Goodbye) else ""


def _connect(kind: str, address: str, run: RunFolder, timeout_s: float) -> socket.socket:
    """Connect to a supervisor's endpoint, a Unix socket ("unix") or a port on this machine ("tcp").

    Raises NotAnswering if it does not accept the connection in time, and NotRunning if nothing listens there.
    """
    family = socket.AF_UNIX if kind == "unix" and hasattr(socket, "AF_UNIX") else socket.AF_INET
    connection = socket.socket(family)
    connection.settimeout(max(timeout_s, _MIN_CONNECT_S))
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                connection.connect(address if kind == "unix" else ("127.0.0.1", int(address)))
                break
            except BlockingIOError:  # the backlog of a Unix socket is full
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
    except (BlockingIOError, TimeoutError) as error:
        connection.close()
        raise NotAnswering(describe_silence(run, "accepts no connections, and so no commands")) from error
    except (OSError, ValueError) as error:
        connection.close()
        raise NotRunning(f"The supervisor of {run.run_id} does not answer at {kind}:{address}: {error}.") from error
    return connection
