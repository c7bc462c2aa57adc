"""A client's connection to a running run: its events from any number on, and commands to it."""

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
"""A supervisor answers at once, whatever its workers do."""
_LEAST_S = 0.05
"""How long at least a system may take to connect two sockets."""
_CHUNK = 1 << 18
_AGAIN_S = 0.01
_GOODBYE = b'{"type":"goodbye"'

ServerMessage = Welcome | Goodbye | AnyEvent


class NotRunning(ConnectionError):  # noqa: N818  (it is a state of things more than an error)
    """There is nobody to connect to; the text says why, in words for the user."""


class NotAnswering(ConnectionError):  # noqa: N818
    """The supervisor lives and lets nobody in, as one that was stopped, or not this client; the text says why."""


class RunConnection:
    """A non-blocking connection to the supervisor of `run`, which sends the events from number `from_n` on.

    `fileno` is readable whenever `receive` has something to give. `closed` is true once the other end has ended,
    `reason` then says why where it did say, in its `Goodbye`. A gap in the numbers means that this reader was too
    slow and was spared step metrics or device samples; they are in the run's file. Making one takes `patience_s` at
    most. Raises NotRunning, NotAnswering.
    """

    def __init__(self, run: RunFolder, from_n: int = 1, *, patience_s: float = CONNECT_S) -> None:
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
        self.closed = False
        self.reason = ""
        self._socket = _connect(kind, address, run, patience_s)
        try:
            self._socket.sendall(ENCODE.encode(Hello(from_n=from_n, token=token)) + b"\n")
        except OSError as error:
            self._socket.close()
            raise NotRunning(f"The supervisor of {run.run_id} does not listen: {error}.") from error
        self._socket.setblocking(False)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive_lines(self) -> list[bytes]:
        """The lines that have arrived, as they stand in the run's file; none where nothing waits."""
        if self.closed:
            return []
        try:
            data = self._socket.recv(_CHUNK)
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
            self.reason = _reason(lines[-1])
        return lines

    def receive(self) -> list[ServerMessage]:
        """The messages that have arrived; those of a newer Footplate that are not understood are passed over."""
        messages: list[ServerMessage] = []
        for line in self.receive_lines():
            try:
                message = SERVER_MESSAGE.decode(line)
            except NOT_DECODED:
                continue
            messages.append(message)
        return messages

    def send(self, message: Command) -> None:
        """Sends a command. Raises OSError where the supervisor has gone."""
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
    """Sends commands to the supervisor of `run`, on a connection that has its place whoever else reads, and waits for
    its answer; None where there is none for ANSWER_S, so that it may hear them later. Raises NotRunning,
    NotAnswering.
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


def silent(run: RunFolder, how: str = f"has not answered for {ANSWER_S:.0f} s") -> str:
    """What to tell of a supervisor that lives and says nothing."""
    supervisor = run.supervisor()
    pid = supervisor.pid if supervisor is not None else 0
    return f"The supervisor of {run.run_id} (pid {pid}) {how}. If it was stopped, `kill -CONT {pid}` resumes it."


def _reason(line: bytes) -> str:
    try:
        message = SERVER_MESSAGE.decode(line)
    except NOT_DECODED:
        return ""
    return message.reason if isinstance(message, Goodbye) else ""


def _connect(kind: str, address: str, run: RunFolder, patience_s: float) -> socket.socket:
    family = socket.AF_UNIX if kind == "unix" and hasattr(socket, "AF_UNIX") else socket.AF_INET
    connection = socket.socket(family)
    connection.settimeout(max(patience_s, _LEAST_S))
    deadline = time.monotonic() + patience_s
    try:
        while True:
            try:
                connection.connect(address if kind == "unix" else ("127.0.0.1", int(address)))
                break
            except BlockingIOError:  # too many wait to be let in, for which a Unix socket does not wait in line
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)
    except (BlockingIOError, TimeoutError) as error:
        connection.close()
        raise NotAnswering(silent(run, "accepts no connections, and so no commands")) from error
    except (OSError, ValueError) as error:
        connection.close()
        raise NotRunning(f"The supervisor of {run.run_id} does not answer at {kind}:{address}: {error}.") from error
    return connection
