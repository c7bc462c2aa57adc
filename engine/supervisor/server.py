"""The server of one run: every client reads the log at its own pace, and none can hold up anything.

A client is a place in the log and one bounded buffer. What it has not taken yet stays in the log, so a slow
one costs no memory; far behind, it gets no more step metrics and device samples until it has caught up.
"""

from __future__ import annotations

import errno
import hmac
import selectors
import socket
import time
from collections.abc import Callable

import msgspec

from engine.contract.events import DROPPABLE
from engine.contract.protocol import (
    CLIENT_MESSAGE,
    COMMANDS_ONLY,
    ENCODE,
    MAX_COMMAND_BYTES,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    ClientMessage,
    Command,
    FrameError,
    Frames,
    Goodbye,
    Hello,
    Welcome,
)
from engine.supervisor.endpoint import BACKLOG, Endpoint
from engine.supervisor.event_log import EventLog

MAX_CLIENTS = 64
"""The most clients that read events. A stalled one is disconnected to make room for another."""
STALLED_S = 5.0
"""A client that has read nothing for this long, although there was something to read, has stalled."""
MAX_CONTROLS = 16
"""The most clients that only send commands, counted apart; the oldest is disconnected to make room for another."""
MAX_STRANGERS = 256
"""The most connections without a hello; the oldest is disconnected to make room for another."""
HELLO_S = 10.0
"""How long a client may take to send its hello."""
NO_FILE_S = 1.0
"""How long no connection is accepted after the system has run out of file descriptors."""
GOODBYE_S = 2.0
"""How long a client that is being disconnected may take to read the reason."""
THIN_BYTES = 256 << 10
"""A client this many bytes behind the newest event no longer gets the events that may be dropped."""

_CHUNK = 1 << 16
_NO_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_ROUNDS = 8
_DROPPABLE = tuple(f'{{"type":"{kind.__struct_config__.tag}"'.encode() for kind in DROPPABLE)


class Client:
    """One connection. `cursor` is its place in the log, None until it has said hello."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = Frames(MAX_COMMAND_BYTES)
        self.out = bytearray()
        self.cursor: int | None = None
        self.commands_only = False
        self.live_from = 0
        self.leaving = False
        self.deadline: float | None = time.monotonic() + HELLO_S
        self.writing = False
        self.took_at = time.monotonic()

    def stalled_s(self) -> float:
        """For how long it has taken nothing of what there was to take."""
        return time.monotonic() - self.took_at if self.writing and not self.leaving else 0.0


class Server:
    """Answers on `endpoint`, which `listen` changes, from within the loop of `selector`; `command` is called with what
    clients ask.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        log: EventLog,
        run_id: str,
        selector: selectors.BaseSelector,
        command: Callable[[Command], None],
    ) -> None:
        self.endpoint = endpoint
        self._log = log
        self._run_id = run_id
        self._selector = selector
        self._command = command
        self._clients: dict[Client, None] = {}
        self._closed_until: float | None = None
        self._shut = ""
        selector.register(endpoint.listener, selectors.EVENT_READ, self._accept)

    def listen(self, endpoint: Endpoint) -> None:
        """Listens there from now on; who is connected stays so."""
        self._open_door()
        self._selector.unregister(self.endpoint.listener)
        self.endpoint.close()
        self.endpoint = endpoint
        self._selector.register(endpoint.listener, selectors.EVENT_READ, self._accept)

    def shut(self, reason: str) -> None:
        """Sends clients away for `reason` from now on; "" lets them in again."""
        for client in list(self._clients) if reason else ():
            self._send_away(client, reason)
        self._shut = reason

    def tick(self) -> None:
        """Sends what is new to all who wait for it, and parts from those whose time is up."""
        now = time.monotonic()
        if self._closed_until is not None and now > self._closed_until:
            self._open_door()
        for client in list(self._clients):
            if client.deadline is not None and now > client.deadline:
                if client.leaving:
                    self._drop(client)
                else:
                    self._send_away(client, "no hello arrived in time")
            elif not client.writing:
                if client.cursor is not None:
                    client.cursor = min(client.cursor, self._log.end)
                self._pump(client)

    @property
    def drained(self) -> bool:
        """Whether every client has been handed all there is."""
        return not any(client.out or self._behind(client) for client in self._clients)

    def close(self) -> None:
        for client in list(self._clients):
            self._drop(client)
        self._open_door()
        self._selector.unregister(self.endpoint.listener)
        self.endpoint.close()

    def _open_door(self) -> None:
        """Lets clients in again."""
        if self._closed_until is not None:
            self._closed_until = None
            self._selector.register(self.endpoint.listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _mask: int) -> None:
        """Lets in all who wait, so that those who come again and again do not keep the others out."""
        for _ in range(BACKLOG):
            try:
                connection, _ = self.endpoint.listener.accept()
            except OSError as error:
                if error.errno in _NO_FILE:  # those who wait would wake this loop at once, again and again
                    self._selector.unregister(self.endpoint.listener)
                    self._closed_until = time.monotonic() + NO_FILE_S
                return  # else nobody is left
            self._let_in(connection)

    def _let_in(self, connection: socket.socket) -> None:
        strangers = [client for client in self._clients if client.cursor is None]
        if len(strangers) >= MAX_STRANGERS:
            self._drop(strangers[0])
        connection.setblocking(False)
        client = Client(connection)
        self._clients[client] = None
        self._selector.register(connection, selectors.EVENT_READ, lambda mask: self._ready(client, mask))
        if not self.endpoint.admits(connection):
            self._send_away(client, "this run belongs to another user")

    def _ready(self, client: Client, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._receive(client)
        if mask & selectors.EVENT_WRITE and client in self._clients:
            self._pump(client)

    def _receive(self, client: Client) -> None:
        try:
            data = client.connection.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        try:
            for line in client.frames.feed(data):
                if client.leaving:
                    return
                self._handle(client, CLIENT_MESSAGE.decode(line))
        except FrameError as error:
            self._send_away(client, str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._send_away(client, f"invalid message: {error}")

    def _handle(self, client: Client, message: ClientMessage) -> None:
        if isinstance(message, Hello):
            self._welcome(client, message)
        elif client.cursor is None:
            self._send_away(client, "the first message must be a hello")
        else:
            self._command(message)

    def _welcome(self, client: Client, hello: Hello) -> None:
        if client.cursor is not None:
            self._send_away(client, "a second hello")
        elif hello.protocol != PROTOCOL_VERSION:
            self._send_away(
                client, f"protocol version {hello.protocol} is not supported; this run uses {PROTOCOL_VERSION}"
            )
        elif not hmac.compare_digest(hello.token.encode(errors="replace"), self.endpoint.token.encode()):
            self._send_away(client, "wrong token")
        elif self._shut:
            self._send_away(client, self._shut)
        elif not self._has_room(commands_only=hello.from_n == COMMANDS_ONLY):
            self._send_away(client, f"{MAX_CLIENTS} clients are already connected")
        else:
            client.deadline = None
            client.commands_only = hello.from_n == COMMANDS_ONLY
            client.took_at = time.monotonic()
            client.cursor = self._log.offset_of(hello.from_n)
            client.live_from = self._log.end
            welcome = Welcome(protocol=PROTOCOL_VERSION, run_id=self._run_id, next_n=self._log.next_n)
            client.out += ENCODE.encode(welcome) + b"\n"
            self._pump(client)

    def _has_room(self, *, commands_only: bool) -> bool:
        """Makes a place where it can: whether there is one."""
        there = [
            client
            for client in self._clients
            if client.cursor is not None and not client.leaving and client.commands_only == commands_only
        ]
        if len(there) < (MAX_CONTROLS if commands_only else MAX_CLIENTS):
            return True
        goes = there[0] if commands_only else max(there, key=Client.stalled_s)
        if not commands_only and goes.stalled_s() < STALLED_S:
            return False
        self._send_away(
            goes,
            "disconnected to make room for another client"
            if commands_only
            else "disconnected to make room: it had stopped reading",
        )
        return True

    def _send_away(self, client: Client, reason: str) -> None:
        if client.leaving or client not in self._clients:
            return
        # Lines that wait for this client are whole but for the first, which may have begun to go out.
        del client.out[client.out.find(b"\n") + 1 :]
        client.out += ENCODE.encode(Goodbye(reason=reason[:500])) + b"\n"
        client.leaving = True
        client.deadline = time.monotonic() + GOODBYE_S
        self._pump(client)

    def _pump(self, client: Client) -> None:
        """Hands over as much as the client takes at once, in turns so that others get theirs."""
        try:
            for _ in range(_ROUNDS):
                if not client.out and not self._refill(client):
                    break
                sent = client.connection.send(client.out)
                del client.out[:sent]
                client.took_at = time.monotonic()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._drop(client)
            return
        if client.leaving and not client.out:
            self._part(client)
            return
        self._watch(client, bool(client.out) or self._behind(client))

    def _behind(self, client: Client) -> bool:
        if client.cursor is None or client.leaving or client.commands_only:
            return False
        return client.cursor < self._log.end

    def _refill(self, client: Client) -> bool:
        while self._behind(client):
            assert client.cursor is not None
            try:
                lines = self._log.read(client.cursor, _CHUNK)
            except OSError as error:
                self._send_away(client, f"the log can't be read: {error}")
                return bool(client.out)
            if not lines:
                client.cursor = self._log.end  # somebody has cut the log short
                return bool(client.out)
            thin = client.cursor >= client.live_from and self._log.end - client.cursor > THIN_BYTES
            client.cursor += len(lines)
            if thin or len(lines) > MAX_FRAME_BYTES:
                lines = b"\n".join(line for line in lines.split(b"\n") if _may_go(line, thin=thin))
            client.out += lines
            if client.out:
                return True
        return False

    def _watch(self, client: Client, writing: bool) -> None:
        if client.writing != writing:
            client.writing = writing
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
            self._selector.modify(client.connection, mask, self._selector.get_key(client.connection).data)

    def _part(self, client: Client) -> None:
        """Closes for writing first: closing outright with input unread would take the goodbye back."""
        try:
            client.connection.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(client)
            return
        self._watch(client, False)

    def _drop(self, client: Client) -> None:
        if client in self._clients:
            del self._clients[client]
            self._selector.unregister(client.connection)
            client.connection.close()


def _may_go(line: bytes, *, thin: bool) -> bool:
    """Whether a line is no longer than a frame, which one that was damaged on disk may be, and where `thin` is not one
    of those that may be dropped.
    """
    return len(line) < MAX_FRAME_BYTES and not (thin and line.startswith(_DROPPABLE))
