"""Server of a run inside the test's process."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from engine.contract.events import AnyEvent
from engine.contract.protocol import ENCODE, SERVER_MESSAGE, Command, Goodbye, Hello, Welcome
from engine.supervisor.endpoint import open_endpoint
from engine.supervisor.event_log import EventLog
from engine.supervisor.server import Server
from tests.support.waiting import PATIENCE_S


class LocalServer:
    """Server of a run in this process, whose log has these `events`.

    It handles its sockets only during calls of `poll_until_true` and `poll_for`. `commands` collects the commands that
    it receives.
    """

    def __init__(self, folder: Path, events: Iterable[AnyEvent]) -> None:
        self.commands: list[Command] = []
        self.polls = 0
        self._selector = selectors.DefaultSelector()
        self.log = EventLog(folder / "events.jsonl")
        for event in events:
            self.log.append(event)
        self.server = Server(open_endpoint(folder), self.log, "run", self._selector, self.commands.append)
        self._stack = ExitStack()

    def poll_until_true(self, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline
            self.polls += 1
            for key, mask in self._selector.select(0.05):
                key.data(mask)
            self.server.tick()

    def poll_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.poll_until_true(lambda: time.monotonic() > end, seconds + PATIENCE_S)

    def open_client(self, data: bytes = b"") -> socket.socket:
        client = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        client.connect(self.server.endpoint.text.removeprefix("unix:"))
        client.setblocking(False)
        client.sendall(data)
        return client

    def connect(self, *, from_n: int = 1) -> tuple[socket.socket, Welcome | Goodbye]:
        """Connect a client that requests the events from number `from_n` on.

        Returns the client's socket and the server's answer, which remains in the socket.
        """
        client = self.open_client(ENCODE.encode(Hello(from_n=from_n)) + b"\n")
        message = self.peek_line(client)
        assert isinstance(message, Welcome | Goodbye)
        return client, message

    def peek_line(self, client: socket.socket) -> object:
        """Wait until a client has received a full line, and decode it without removing it from the socket."""
        self.poll_until_true(lambda: _peek(client).count(b"\n"))
        return SERVER_MESSAGE.decode(_peek(client).partition(b"\n")[0])

    def receive(self, client: socket.socket, until: Callable[[bytes], object]) -> bytes:
        """Read from a client's connection until the received bytes meet a condition, and return them."""
        received = b""

        def is_done() -> bool:
            nonlocal received
            received += receive_available(client)
            return bool(until(received))

        self.poll_until_true(is_done)
        return received

    def close(self) -> None:
        self._stack.close()
        self.server.close()
        self.log.close()
        self._selector.close()


def _peek(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 16, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


def receive_available(client: socket.socket) -> bytes:
    try:
        return client.recv(1 << 20)
    except BlockingIOError:
        return b""
