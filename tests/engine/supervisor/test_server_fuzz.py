"""Random input of clients, which must affect nobody else."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.contract.events import LogLine
from engine.contract.protocol import ENCODE, SERVER_MESSAGE, CheckpointNow, Goodbye, Hello, Stop, Welcome
from engine.supervisor.endpoint import open_endpoint
from engine.supervisor.event_log import EventLog
from engine.supervisor.server import Command, Server

ROUNDS = 200


class Served:
    """Real server on a real socket, driven by the test."""

    def __init__(self, folder: Path) -> None:
        self.commands: list[Command] = []
        self.log = EventLog(folder / "events.jsonl")
        self.selector = selectors.DefaultSelector()
        self.endpoint = open_endpoint(folder)
        self.server = Server(self.endpoint, self.log, "a-run", self.selector, self.commands.append)

    def client(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.endpoint.text.removeprefix("unix:"))
        client.setblocking(False)
        return client

    def poll_once(self) -> None:
        for key, mask in self.selector.select(0):
            key.data(mask)
        self.server.tick()

    def exchange(self, client: socket.socket, data: bytes) -> tuple[bytes, bool]:
        """Send `data`, and return the answer and whether the server closed."""
        answer, rest = b"", data
        for _ in range(ROUNDS):
            try:
                rest = rest[client.send(rest) :] if rest else rest
            except BlockingIOError:
                pass
            except OSError:
                rest = b""
            self.poll_once()
            try:
                chunk = client.recv(1 << 20)
            except BlockingIOError:
                if not rest:
                    return answer, False
                continue
            except ConnectionResetError:
                return answer, True
            if not chunk:
                return answer, True
            answer += chunk
        raise AssertionError("the exchange did not come to an end")

    def close(self) -> None:
        self.server.close()
        self.log.close()
        self.selector.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        # The home of each test is its own; this server lives through all of them.
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
        one = Served(tmp_path_factory.mktemp("served"))
        yield one
        one.close()


valid = st.sampled_from([Hello(), Hello(from_n=3), Hello(protocol=2), Stop(), CheckpointNow(), Hello(token="x")])
line = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=100).map(lambda text: text.encode(errors="replace")),
    valid.map(ENCODE.encode),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "protocol", "from_n", "token", "hello"]), inner, max_size=4)
        ),
        max_leaves=10,
    ).map(ENCODE.encode),
)


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(lines=st.lists(line, max_size=6))
def test_no_input_harms_the_server_or_other_clients(served: Served, lines: list[bytes]) -> None:
    with served.client() as witness, served.client() as attacker:
        served.exchange(witness, ENCODE.encode(Hello(from_n=served.log.next_n)) + b"\n")
        before = len(served.commands)
        answer, closed = served.exchange(attacker, b"".join(line + b"\n" for line in lines))
        messages = [SERVER_MESSAGE.decode(line) for line in answer.splitlines()]
        if closed:
            assert isinstance(messages[-1], Goodbye)
        if len(served.commands) > before:
            assert any(isinstance(message, Welcome) for message in messages), "a command was heeded without a hello"
        served.log.append(LogLine(text="still here"))
        served.poll_once()
        lines_of_witness, is_closed = served.exchange(witness, b"")
        assert not is_closed
        assert SERVER_MESSAGE.decode(lines_of_witness.splitlines()[-1]).text == "still here"  # type: ignore[union-attr]
