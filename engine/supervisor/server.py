"""Server for the event stream of one run. Each client reads at its own pace, without delaying others.

A client is served from its offset in the log, through one bounded buffer, so that a slow client needs no additional
memory. Clients that keep up are served from the part of the log in memory. A client that falls far behind gets no step
metrics and device samples until it has caught up.
"""

from __future__ import annotations

import errno
import hmac
import selectors
import socket
import time
from collections.abc import Callable

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
from engine.system.decode_errors import NOT_DECODED

MAX_CLIENTS = 64
"""Maximum number of clients that read events. If another connects, one that has stalled is disconnected."""
STALLED_S = 5.0
"""Minimum time in seconds without reading pending events for a client to count as stalled."""
MAX_CONTROLS = 16
"""Maximum number of clients that only send commands. If another connects, the oldest one is disconnected."""
MAX_UNAUTHENTICATED = 256
"""Maximum number of connections without a hello. If there are more, the oldest one is closed."""
HELLO_S = 10.0
"""Maximum time to wait for a client's hello, in seconds."""
NO_FILE_S = 1.0
"""Seconds without accepting connections after the system has run out of file descriptors."""
GOODBYE_S = 2.0
"""Maximum time to wait until a client has read the reason for its disconnection, in seconds."""
SLOW_BYTES = 256 << 10
"""Minimum number of unsent bytes for a client to count as slow. It then gets no droppable events."""

_CHUNK_BYTES = 1 << 16
_NO_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_ROUNDS = 8
"""Maximum number of buffers that are sent to one client before other clients are served."""
_DROPPABLE = tuple(f'{{"type":"{kind.__struct_config__.tag}"'.encode() for kind in DROPPABLE)


class Client:
    """Connection to a client. `cursor` is the offset in the log of its next event, or None before its hello."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = Frames(MAX_COMMAND_BYTES)
        self.buffer = bytearray()
        self.cursor: int | None = None
        self.commands_only = False  # True for a client that reads no events
        self.history_end = 0  # offset of the log's end at its hello; even a slow client gets all events before it
        self.is_leaving = False  # True after a goodbye
        self.deadline: float | None = time.monotonic() + HELLO_S  # for its hello, or for reading the goodbye
        self.is_writing = False  # True while its socket accepts no more data
        self.last_read_at = time.monotonic()  # time when it last accepted data

    def stalled_s(self) -> float:
        """Return the time in seconds since the client last read data. It is 0 if no data is pending."""
        return time.monotonic() - self.last_read_at if self.is_writing and not self.is_leaving else 0.0


class Server:
    """Server at `endpoint` that sends a run's log to clients. The loop of `selector` polls its sockets.

    `on_command` is called with the commands of clients.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        log: EventLog,
        run_id: str,
        selector: selectors.BaseSelector,
        on_command: Callable[[Command], None],
    ) -> None:
        self.endpoint = endpoint
        self._log = log
        self._run_id = run_id
        self._selector = selector
        self._on_command = on_command
        self._clients: dict[Client, None] = {}  # in the order of their connections
        self._accept_again_at: float | None = None  # set while there are no free file descriptors
        self._refusal = ""  # reason for refusing all new clients, or ""
        selector.register(endpoint.listener, selectors.EVENT_READ, self._accept)

    def listen(self, endpoint: Endpoint) -> None:
        """Listen at another endpoint. Existing connections remain open."""
        self._resume_accepting()  # only a registered listener can be unregistered
        self._selector.unregister(self.endpoint.listener)
        self.endpoint.close()
        self.endpoint = endpoint
        self._selector.register(endpoint.listener, selectors.EVENT_READ, self._accept)

    def refuse_clients(self, reason: str) -> None:
        """Disconnect all clients, and refuse new clients with this `reason` until `accept_clients` is called."""
        for client in list(self._clients):
            self._dismiss(client, reason)
        self._refusal = reason

    def accept_clients(self) -> None:
        """Accept clients after `refuse_clients`."""
        self._refusal = ""

    def tick(self) -> None:
        """Send new events to the clients that are ready for them, and disconnect clients that exceed a time limit.

        If accepting was suspended for lack of file descriptors, resume it when its pause is over.
        """
        now = time.monotonic()
        if self._accept_again_at is not None and now > self._accept_again_at:
            self._resume_accepting()
        for client in list(self._clients):
            if client.deadline is not None and now > client.deadline:
                if client.is_leaving:
                    self._disconnect(client)
                else:
                    self._dismiss(client, "no hello arrived in time")
            elif not client.is_writing:
                self._send_pending(client)

    @property
    def is_drained(self) -> bool:
        """True if all events have been sent to all clients."""
        return not any(client.buffer or self._is_behind(client) for client in self._clients)

    def close(self) -> None:
        """Disconnect all clients at once, and close the socket."""
        for client in list(self._clients):
            self._disconnect(client)
        self._resume_accepting()  # only a registered listener can be unregistered
        self._selector.unregister(self.endpoint.listener)
        self.endpoint.close()

    def _resume_accepting(self) -> None:
        """Accept connections again if that was suspended for lack of file descriptors."""
        if self._accept_again_at is not None:
            self._accept_again_at = None
            self._selector.register(self.endpoint.listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _mask: int) -> None:
        """Accept the waiting connections, up to `BACKLOG`, so that clients that reconnect often can't block others."""
        for _ in range(BACKLOG):
            try:
                connection, _ = self.endpoint.listener.accept()
            except OSError as error:
                if error.errno in _NO_FILE:  # waiting connections would wake this loop all the time
                    self._selector.unregister(self.endpoint.listener)
                    self._accept_again_at = time.monotonic() + NO_FILE_S
                return
            self._add_client(connection)

    def _add_client(self, connection: socket.socket) -> None:
        """Add a connection as a client, which gets no events before it has sent a hello.

        Connections of other users are refused. If `MAX_UNAUTHENTICATED` connections have sent no hello, the oldest one
        of them is closed.
        """
        unauthenticated = [client for client in self._clients if client.cursor is None]
        if len(unauthenticated) >= MAX_UNAUTHENTICATED:
            self._disconnect(unauthenticated[0])
        connection.setblocking(False)
        client = Client(connection)
        self._clients[client] = None
        self._selector.register(connection, selectors.EVENT_READ, lambda mask: self._on_ready(client, mask))
        if not self.endpoint.admits(connection):
            self._dismiss(client, "this run belongs to another user")

    def _on_ready(self, client: Client, mask: int) -> None:
        """Receive from a client, or send to it, as its socket allows according to `mask`."""
        if mask & selectors.EVENT_READ:
            self._receive(client)
        if mask & selectors.EVENT_WRITE and client in self._clients:
            self._send_pending(client)

    def _receive(self, client: Client) -> None:
        """Read and handle messages from a client. Disconnects it after an invalid message."""
        try:
            data = client.connection.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect(client)
            return
        try:
            for line in client.frames.feed(data):
                if client.is_leaving:
                    return  # an earlier message was invalid
                self._handle(client, CLIENT_MESSAGE.decode(line))
        except FrameError as error:
            self._dismiss(client, str(error))
        except NOT_DECODED as error:
            self._dismiss(client, f"invalid message: {error}")

    def _handle(self, client: Client, message: ClientMessage) -> None:
        """Handle a client's hello or command. A command before the hello ends the connection."""
        if isinstance(message, Hello):
            self._welcome(client, message)
        elif client.cursor is None:
            self._dismiss(client, "the first message must be a hello")
        else:
            self._on_command(message)

    def _welcome(self, client: Client, hello: Hello) -> None:
        """Answer a client's hello, and start sending it events. A client with an invalid hello is disconnected."""
        refusal = self._refusal
        if client.cursor is not None:
            refusal = "a second hello"
        elif hello.protocol != PROTOCOL_VERSION:
            refusal = f"protocol version {hello.protocol} is not supported; this run uses {PROTOCOL_VERSION}"
        elif not hmac.compare_digest(hello.token.encode(errors="replace"), self.endpoint.token.encode()):
            refusal = "wrong token"
        elif not refusal and not self._make_room(commands_only=hello.from_n == COMMANDS_ONLY):
            refusal = f"{MAX_CLIENTS} clients are already connected"
        if refusal:
            self._dismiss(client, refusal)
            return
        client.deadline = None
        client.commands_only = hello.from_n == COMMANDS_ONLY
        client.last_read_at = time.monotonic()
        client.cursor = self._log.offset_of(hello.from_n)
        client.history_end = self._log.end
        welcome = Welcome(protocol=PROTOCOL_VERSION, run_id=self._run_id, next_n=self._log.next_n)
        client.buffer += ENCODE.encode(welcome) + b"\n"
        self._send_pending(client)

    def _make_room(self, *, commands_only: bool) -> bool:
        """Disconnect a client if the maximum number is reached. Return True if another client can be accepted.

        There are separate limits for clients that only send commands (`commands_only`) and for those that read events.
        Of the clients that only send commands, the oldest is disconnected. Of the readers, it is the one that stopped
        reading first, if it has not read for at least `STALLED_S` seconds. Otherwise, there is no room.
        """
        # Clients without a cursor have sent no hello yet. `_add_client` limits their number.
        clients = [
            client
            for client in self._clients
            if client.cursor is not None and not client.is_leaving and client.commands_only == commands_only
        ]
        if len(clients) < (MAX_CONTROLS if commands_only else MAX_CLIENTS):
            return True
        if commands_only:
            # Clients are stored in the order of their connections.
            self._dismiss(clients[0], "disconnected to make room for another client")
            return True
        slowest = max(clients, key=Client.stalled_s)
        if slowest.stalled_s() < STALLED_S:
            return False
        self._dismiss(slowest, "disconnected to make room: it had stopped reading")
        return True

    def _dismiss(self, client: Client, reason: str) -> None:
        """Discard the lines that are pending for a client, send it the reason, and disconnect it."""
        if client.is_leaving or client not in self._clients:
            return
        # The first line in the buffer may be sent in part, and must be completed.
        del client.buffer[client.buffer.find(b"\n") + 1 :]
        client.buffer += ENCODE.encode(Goodbye(reason=reason[:500])) + b"\n"
        client.is_leaving = True
        client.deadline = time.monotonic() + GOODBYE_S
        self._send_pending(client)

    def _send_pending(self, client: Client) -> None:
        """Send pending data to a client without blocking, at most `_ROUNDS` buffers."""
        try:
            for _ in range(_ROUNDS):
                if not client.buffer and not self._fill_buffer(client):
                    break
                sent = client.connection.send(client.buffer)
                del client.buffer[:sent]
                client.last_read_at = time.monotonic()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._stop_sending(client)
            return
        if client.is_leaving and not client.buffer:
            self._shut_down_writing(client)
            return
        self._watch_writing(client, is_watched=bool(client.buffer) or self._is_behind(client))

    def _stop_sending(self, client: Client) -> None:
        """Send nothing more to a client that has closed its end. The commands that it sent before are still received."""
        if client.is_leaving:
            self._disconnect(client)
            return
        client.buffer.clear()
        client.commands_only = True
        self._watch_writing(client, is_watched=False)

    def _is_behind(self, client: Client) -> bool:
        """Return True if a client reads events, and the log has some that were not put into its buffer."""
        if client.cursor is None or client.is_leaving or client.commands_only:
            return False
        return client.cursor < self._log.end

    def _fill_buffer(self, client: Client) -> bool:
        """Fill the client's buffer with the next lines of the log. Return False if there are none."""
        while self._is_behind(client):
            assert client.cursor is not None
            try:
                lines = self._log.read(client.cursor, _CHUNK_BYTES)
            except OSError as error:
                self._dismiss(client, f"the log can't be read: {error}")
                return bool(client.buffer)
            if not lines:  # another program has truncated the file: skip the missing lines
                is_in_file = client.cursor < self._log.recent_offset
                client.cursor = self._log.recent_offset if is_in_file else self._log.end
                continue
            # The history is complete for every client, however slow.
            is_slow = client.cursor >= client.history_end and self._log.end - client.cursor > SLOW_BYTES
            client.cursor += len(lines)
            if is_slow or len(lines) > MAX_FRAME_BYTES:
                lines = b"\n".join(line for line in lines.split(b"\n") if _can_send(line, is_slow=is_slow))
            client.buffer += lines
            if client.buffer:
                return True
        return False

    def _watch_writing(self, client: Client, *, is_watched: bool) -> None:
        """Make the selector report when the client's socket accepts data, or stop this if `is_watched` is False."""
        if client.is_writing != is_watched:
            client.is_writing = is_watched
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_watched else 0)
            self._selector.modify(client.connection, mask, self._selector.get_key(client.connection).data)

    def _shut_down_writing(self, client: Client) -> None:
        """Close a connection only for writing.

        If it were closed while unread input is left, the system would discard the last message to the client.
        """
        try:
            client.connection.shutdown(socket.SHUT_WR)
        except OSError:
            self._disconnect(client)
            return
        self._watch_writing(client, is_watched=False)

    def _disconnect(self, client: Client) -> None:
        """Close the connection to a client at once, unless it has been closed before."""
        if client in self._clients:
            del self._clients[client]
            self._selector.unregister(client.connection)
            client.connection.close()


def _can_send(line: bytes, *, is_slow: bool) -> bool:
    """Return True if a line of the log should be sent to a client. A slow client gets no droppable events.

    Damaged lines that are too long for a frame are not sent.
    """
    return len(line) < MAX_FRAME_BYTES and not (is_slow and line.startswith(_DROPPABLE))
