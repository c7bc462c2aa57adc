"""Connections to supervisors that are only simulated by sockets of this process."""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.contract.job import Job
from engine.contract.protocol import CLIENT_MESSAGE, ENCODE, MAX_FRAME_BYTES, Goodbye, Hello, Stop
from engine.runs.connection import NotAnswering, NotRunning, RunConnection, send
from engine.runs.folder import RunFolder, SupervisorFile, create_run, process_start
from tests.support.waiting import PATIENCE_S


def make_run(endpoint: str) -> RunFolder:
    """Create a run whose supervisor is this process."""
    run = create_run(Job())
    run.write_supervisor(SupervisorFile(pid=os.getpid(), start_time=process_start(os.getpid()), endpoint=endpoint))
    return run


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.mark.parametrize("endpoint", ["unix:/nowhere", "tcp:port:secret"])
def test_endpoint_where_nothing_listens_is_not_running(endpoint: str) -> None:
    with pytest.raises(NotRunning, match=f"does not answer at {endpoint.removesuffix('secret').rstrip(':')}:"):
        RunConnection(make_run(endpoint))


def test_full_backlog_is_not_answering() -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as waiting:
        server.bind("\0footplate-test-backlog")
        server.listen(0)
        waiting.connect("\0footplate-test-backlog")
        with pytest.raises(NotAnswering, match=rf"\(pid {os.getpid()}\) accepts no connections"):
            RunConnection(make_run("unix:\0footplate-test-backlog"), timeout_s=0.01)


def test_refusal_of_a_command_has_its_reason(listening: socket.socket) -> None:
    def refuse() -> None:
        server, _ = listening.accept()
        with server:
            server.sendall(b'{"type":"unknown"}\n' + ENCODE.encode(Goodbye(reason="busy")) + b"\n")
            while server.recv(4096):  # until the client closes the connection
                pass

    with ThreadPoolExecutor() as pool:
        pool.submit(refuse)
        with pytest.raises(NotAnswering, match="refuses: busy"):
            send(make_run(f"tcp:{listening.getsockname()[1]}:secret"), Stop())


@pytest.mark.parametrize(
    ("sent", "is_reset", "lines", "reason"),
    [
        (b'{"a": 1}\n{"b"', False, 1, ""),
        (ENCODE.encode(Goodbye(reason="too slow")) + b"\n", False, 1, "too slow"),
        (b'{"type":"goodbye"?\n', False, 1, ""),
        (b"", True, 0, "reset by peer"),
        (b"x" * (MAX_FRAME_BYTES + 1), False, 0, "longer than"),
    ],
    ids=["partial line", "goodbye", "damaged goodbye", "reset", "long line"],
)
def test_closed_connection_has_the_reason(
    listening: socket.socket, sent: bytes, is_reset: bool, lines: int, reason: str
) -> None:
    run = make_run(f"tcp:{listening.getsockname()[1]}:secret")
    received: list[bytes] = []
    with RunConnection(run, 7) as connection:
        server, _ = listening.accept()
        with server:
            hello = CLIENT_MESSAGE.decode(server.makefile("rb").readline())
            assert hello == Hello(from_n=7, token="secret")
            assert (connection.receive_lines(), connection.closed) == ([], False)
            server.settimeout(PATIENCE_S)
            if is_reset:  # without a lingering time, closing resets the connection
                server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for first in range(0, len(sent), 1 << 16):
                server.sendall(sent[first : first + (1 << 16)])
                received += connection.receive_lines()
            while len(sent) > MAX_FRAME_BYTES and not connection.closed:
                assert select.select([connection], [], [], PATIENCE_S)[0]
                received += connection.receive_lines()
        while not connection.closed:
            assert select.select([connection], [], [], PATIENCE_S)[0]
            received += connection.receive_lines()
        assert connection.receive_lines() == []
        assert len(received) == lines
        assert reason in connection.reason
        assert bool(connection.reason) == bool(reason)
