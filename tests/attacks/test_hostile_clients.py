"""Hostile clients: they occupy all connections, don't read, send forever, or exhaust file descriptors.

Other clients must still reach the run.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from engine.contract.events import Event, LogLine, RunFinished
from engine.contract.protocol import (
    COMMANDS_ONLY,
    ENCODE,
    MAX_COMMAND_BYTES,
    SERVER_MESSAGE,
    Goodbye,
    Hello,
    Stop,
    Welcome,
)
from engine.runs.connection import RunConnection
from engine.supervisor import server as server_module
from engine.supervisor.server import MAX_CLIENTS, MAX_CONTROLS, STALLED_S
from tests.attacks.hostile_frames import draw_message, send
from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import ROOT, Start, Supervised, events
from tests.engine.supervisor.test_clients import connect_without_hello
from tests.support.clock import Clock
from tests.support.served import LocalServer, receive_available
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.attacks

LINES = 4_000
"""Number of 1 KB log lines, which together don't fit into the buffer of a socket."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[LocalServer]:
    served = LocalServer(tmp_path, (LogLine(text="x" * 1000) for _ in range(LINES)))
    yield served
    served.close()


def test_stalled_readers_are_replaced_by_waiting_ones(served: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(server_module, "time", clock)
    clients = [served.connect() for _ in range(MAX_CLIENTS)]
    assert all(isinstance(message, Welcome) for _, message in clients)
    _, refused = served.connect()
    assert refused == Goodbye(reason=f"{MAX_CLIENTS} clients are already connected")
    reading = clients[0][0]
    for _ in range(8):
        receive_available(reading)
        clock.now += STALLED_S / 4
        served.poll_for(0.0)
    for _ in range(MAX_CLIENTS - 1):
        assert isinstance(served.connect()[1], Welcome)
        receive_available(reading)
    served.poll_for(0.0)
    assert not any(isinstance(message, Goodbye) for message in _messages(receive_available(reading))), (
        "who reads keeps its place"
    )


def _messages(data: bytes) -> list[object]:
    return [SERVER_MESSAGE.decode(line) for line in data.split(b"\n") if line.startswith(b'{"type":"goodbye"')]


def test_run_is_stopped_although_all_places_are_taken(served: LocalServer) -> None:
    for _ in range(MAX_CLIENTS):
        served.connect()
    for _ in range(2 * MAX_CONTROLS):
        assert isinstance(served.connect(from_n=COMMANDS_ONLY)[1], Welcome)
    served.open_client(ENCODE.encode(Hello(from_n=COMMANDS_ONLY)) + b"\n" + ENCODE.encode(Stop()) + b"\n").close()
    served.poll_until_true(lambda: served.commands == [Stop()])


def test_command_connection_gets_no_events(served: LocalServer) -> None:
    client, message = served.connect(from_n=COMMANDS_ONLY)
    assert isinstance(message, Welcome)
    assert served.server.is_drained
    assert receive_available(client).count(b"\n") == 1


def test_endless_frame_is_refused_at_size_limit(served: LocalServer) -> None:
    clients = [served.open_client(b"x" * MAX_COMMAND_BYTES) for _ in range(16)]
    for client in clients:
        message = served.peek_line(client)
        assert isinstance(message, Goodbye)
        assert message.reason == f"a frame is longer than {MAX_COMMAND_BYTES} bytes"


@pytest.mark.skipif(sys.platform != "linux", reason="files are counted in /proc")
def test_missing_descriptor_for_client_causes_no_busy_loop(served: LocalServer) -> None:
    waiting = [served.open_client(ENCODE.encode(Hello()) + b"\n") for _ in range(4)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, files)) + 1, hard))
    filled = []
    try:
        while True:  # use all free descriptors below the limit
            try:
                filled.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        served.polls = 0
        served.poll_for(1.5)
        turns = served.polls
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in filled:
            os.close(file)
    assert turns < 60, "of at most twenty a second that time out"
    assert all(isinstance(served.peek_line(client), Welcome) for client in waiting)


def connect_crowd(stack: ExitStack, supervised: Supervised) -> None:
    """Connect as many clients as the supervisor's server accepts, until `stack` closes. They never read events."""
    for _ in range(MAX_CLIENTS):
        client = stack.enter_context(connect_without_hello(supervised))
        client.sendall(ENCODE.encode(Hello()) + b"\n")
        assert client.recv(10)


def test_stop_command_works_with_all_places_taken(start: Start) -> None:
    supervised = start("forever")
    with ExitStack() as stack:
        connect_crowd(stack, supervised)
        done = footplate("stop", supervised.run.run_id)
        assert done.code == 0, done.err
        assert f"{supervised.run.run_id} is stopped" in done.out
        assert (
            f"disconnected this command: {MAX_CLIENTS} clients are already connected. Reading its log instead."
            in done.err
        )
    supervised.wait()


def test_attach_reads_log_with_all_places_taken(start: Start) -> None:
    supervised = start("forever")
    command = [sys.executable, str(ROOT / "footplate.py"), "attach", "--json", supervised.run.run_id]
    with ExitStack() as stack:
        connect_crowd(stack, supervised)
        attached = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert attached.stderr is not None
        assert b"Reading its log instead." in attached.stderr.readline()
        with supervised.connect(COMMANDS_ONLY) as connection:
            connection.send(Stop())
        output, _ = attached.communicate(timeout=PATIENCE_S)
    supervised.wait()
    assert output == supervised.run.events_file.read_bytes()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped")
def test_stop_of_unresponsive_supervisor_is_reported(start: Start) -> None:
    supervised = start("forever")
    supervised.connect().close()
    os.kill(supervised.process.pid, signal.SIGSTOP)
    command = [sys.executable, str(ROOT / "footplate.py"), "stop", supervised.run.run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopping:
        assert stopping.stderr is not None
        line = stopping.stderr.readline()
        os.kill(supervised.process.pid, signal.SIGCONT)
        output, _ = stopping.communicate(timeout=PATIENCE_S)
    assert f"(pid {supervised.process.pid}) has not answered for 5 s" in line
    assert f"`kill -CONT {supervised.process.pid}` resumes it" in line
    assert stopping.returncode == 0
    assert f"{supervised.run.run_id} is stopped" in output
    supervised.wait()


DAILY_FRAMES, LONG_FRAMES = 60, 1000
AT_ONCE = 50
"""Maximum number of hostile clients that are connected at the same time."""
MAX_GROWTH_BYTES = 16 << 20
"""Maximum growth of the supervisor's memory in bytes."""
MAX_WAIT_S = 5.0
"""Maximum time in seconds that an honest client waits, if the machine isn't busy otherwise."""


def attack_and_measure(supervised: Supervised, seeds: range) -> dict[str, float]:
    """Let one hostile client per seed attack a run while an honest client follows it.

    Returns the maximum of each effect by name: the growth of the supervisor's memory in bytes, and the seconds that
    an honest client waits for a welcome and for an event.
    """
    process = psutil.Process(supervised.process.pid)
    with supervised.connect() as honest:
        last = wait_for_more(honest, 0)
        files, memory = process.num_fds(), process.memory_info().rss
        maxima = {"bytes more": 0.0, "seconds until a welcome": 0.0, "seconds until an event": 0.0}
        with ExitStack() as stack:
            connected: deque[socket.socket] = deque()
            for seed in seeds:
                drawn = random.Random(seed)
                client = stack.enter_context(connect_without_hello(supervised))
                client.setblocking(False)
                connected.append(client)
                if send(client, draw_message(drawn), drawn):
                    connected.pop().close()
                if len(connected) > AT_ONCE:
                    connected.popleft().close()
                if seed % 20 == 0:
                    started = time.monotonic()
                    supervised.connect().close()
                    welcomed = time.monotonic()
                    last = wait_for_more(honest, last)
                    maxima["seconds until a welcome"] = max(maxima["seconds until a welcome"], welcomed - started)
                    maxima["seconds until an event"] = max(
                        maxima["seconds until an event"], time.monotonic() - welcomed
                    )
                    maxima["bytes more"] = max(maxima["bytes more"], process.memory_info().rss - memory)
        wait_until(lambda: process.num_fds() <= files, "all files of theirs to be closed")
        maxima["bytes more"] = max(maxima["bytes more"], process.memory_info().rss - memory)
        honest.send(Stop())
        for _ in events(honest):
            pass
    return maxima


def _numbers(connection: RunConnection) -> list[int]:
    return [message.n for message in connection.receive() if isinstance(message, Event)]


def wait_for_more(connection: RunConnection, last: int) -> int:
    """Wait for an event after number `last`, check that no event is missing, and return the newest number."""
    started = last

    def has_arrived() -> bool:
        nonlocal last
        for number in _numbers(connection):
            assert last in (0, number - 1), "an event is missing"
            last = number
        return last > started

    wait_until(has_arrived, "another event")
    return last


@pytest.mark.parametrize(
    "seeds",
    [
        range(DAILY_FRAMES),
        pytest.param(range(1000, 1000 + LONG_FRAMES), marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
    ids=len,
)
@pytest.mark.skipif(sys.platform != "linux", reason="files are counted in /proc")
def test_hostile_frames_block_neither_run_nor_clients(start: Start, seeds: range) -> None:
    supervised = start("forever")
    maxima = attack_and_measure(supervised, seeds)
    events = supervised.wait()
    print(f"{len(seeds)} hostile frames: {maxima}")
    assert "Traceback" not in supervised.log
    assert isinstance(events[-1], RunFinished)
    assert events[-1].outcome == "stopped"
    assert [event.n for event in events] == list(range(1, len(events) + 1))
    assert maxima["bytes more"] < MAX_GROWTH_BYTES
    if len(seeds) > DAILY_FRAMES:
        assert maxima["seconds until a welcome"] < MAX_WAIT_S
        assert maxima["seconds until an event"] < MAX_WAIT_S
