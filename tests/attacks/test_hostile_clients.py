"""Clients that take all places, read nothing, send without end or use up the files: nobody else is kept from a run."""

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
from tests.attacks.hostile_frames import said, send
from tests.engine.supervisor.supervised import PATIENCE_S, ROOT, Start, Supervised, events, wait_until
from tests.engine.supervisor.test_clients import raw_client
from tests.support.served import Served, taken

pytestmark = pytest.mark.attacks

LINES = 4_000
"""Of a kilobyte: more than a socket holds."""


class Clock:
    """The server's, which a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path, (LogLine(text="x" * 1000) for _ in range(LINES)))
    yield served
    served.close()


def test_that_readers_who_have_stalled_give_their_places_to_those_who_wait(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(server_module, "time", clock)
    clients = [served.greet() for _ in range(MAX_CLIENTS)]
    assert all(isinstance(word, Welcome) for _, word in clients)
    _, refused = served.greet()
    assert refused == Goodbye(reason=f"{MAX_CLIENTS} clients are already connected")
    reading = clients[0][0]
    for _ in range(8):
        taken(reading)
        clock.now += STALLED_S / 4
        served.turn_for(0.0)
    for _ in range(MAX_CLIENTS - 1):
        assert isinstance(served.greet()[1], Welcome)
        taken(reading)
    served.turn_for(0.0)
    assert not any(isinstance(word, Goodbye) for word in _words(taken(reading))), "who reads keeps its place"


def _words(data: bytes) -> list[object]:
    return [SERVER_MESSAGE.decode(line) for line in data.split(b"\n") if line.startswith(b'{"type":"goodbye"')]


def test_that_a_run_is_stopped_whoever_has_its_places(served: Served) -> None:
    for _ in range(MAX_CLIENTS):
        served.greet()
    for _ in range(2 * MAX_CONTROLS):
        assert isinstance(served.greet(from_n=COMMANDS_ONLY)[1], Welcome)
    served.client(ENCODE.encode(Hello(from_n=COMMANDS_ONLY)) + b"\n" + ENCODE.encode(Stop()) + b"\n").close()
    served.turn_until(lambda: served.asked == [Stop()])


def test_that_who_sends_commands_is_sent_no_events(served: Served) -> None:
    client, word = served.greet(from_n=COMMANDS_ONLY)
    assert isinstance(word, Welcome)
    assert served.server.is_drained
    assert taken(client).count(b"\n") == 1


def test_that_a_frame_without_an_end_is_refused_as_soon_as_it_is_too_long(served: Served) -> None:
    clients = [served.client(b"x" * MAX_COMMAND_BYTES) for _ in range(16)]
    for client in clients:
        word = served.line(client)
        assert isinstance(word, Goodbye)
        assert word.reason == f"a frame is longer than {MAX_COMMAND_BYTES} bytes"


@pytest.mark.skipif(sys.platform != "linux", reason="files are counted in /proc")
def test_that_a_run_without_a_file_for_another_client_waits_instead_of_turning_in_circles(served: Served) -> None:
    waiting = [served.client(ENCODE.encode(Hello()) + b"\n") for _ in range(4)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = os.listdir("/proc/self/fd")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, files)) + 1, hard))
    filled = []
    try:
        while True:  # the numbers below the limit that are free
            try:
                filled.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        served.turns = 0
        served.turn_for(1.5)
        turns = served.turns
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for file in filled:
            os.close(file)
    assert turns < 60, "of at most twenty a second that time out"
    assert all(isinstance(served.line(client), Welcome) for client in waiting)


def footplate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "footplate.py"), *words], capture_output=True, text=True, timeout=120, check=False
    )


def crowd(stack: ExitStack, supervised: Supervised) -> None:
    """Readers on all places, who read nothing."""
    for _ in range(MAX_CLIENTS):
        client = stack.enter_context(raw_client(supervised))
        client.sendall(ENCODE.encode(Hello()) + b"\n")
        assert client.recv(10)


def test_that_the_command_stops_a_run_whose_places_are_all_taken(start: Start) -> None:
    supervised = start("forever")
    with ExitStack() as stack:
        crowd(stack, supervised)
        done = footplate("stop", supervised.run.run_id)
        assert done.returncode == 0, done.stderr
        assert f"{supervised.run.run_id} is stopped" in done.stdout
        assert (
            f"disconnected this command: {MAX_CLIENTS} clients are already connected. Reading its log instead."
            in done.stderr
        )
    supervised.wait()


def test_that_attaching_to_a_run_whose_places_are_all_taken_follows_its_log_and_says_why(start: Start) -> None:
    supervised = start("forever")
    words = [sys.executable, str(ROOT / "footplate.py"), "attach", "--json", supervised.run.run_id]
    with ExitStack() as stack:
        crowd(stack, supervised)
        attached = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        assert attached.stderr is not None
        assert b"Reading its log instead." in attached.stderr.readline()
        with supervised.connect(COMMANDS_ONLY) as connection:
            connection.send(Stop())
        told, _ = attached.communicate(timeout=PATIENCE_S)
    supervised.wait()
    assert told == supervised.run.events_file.read_bytes()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped")
def test_that_stopping_a_run_whose_supervisor_stands_still_says_so(start: Start) -> None:
    supervised = start("forever")
    supervised.connect().close()
    os.kill(supervised.process.pid, signal.SIGSTOP)
    words = [sys.executable, str(ROOT / "footplate.py"), "stop", supervised.run.run_id]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopping:
        assert stopping.stderr is not None
        said = stopping.stderr.readline()
        os.kill(supervised.process.pid, signal.SIGCONT)
        told, _ = stopping.communicate(timeout=PATIENCE_S)
    assert f"(pid {supervised.process.pid}) has not answered for 5 s" in said
    assert f"`kill -CONT {supervised.process.pid}` resumes it" in said
    assert stopping.returncode == 0
    assert f"{supervised.run.run_id} is stopped" in told
    supervised.wait()


DAILY_FRAMES, LONG_FRAMES = 60, 1000
AT_ONCE = 50
"""Hostile clients that stay connected at a time."""
MOST_MORE_BYTES = 16 << 20
"""How much the supervisor may grow by them."""
MOST_WAIT_S = 5.0
"""How long an honest client may wait for a word beside them, on a machine that does little else."""


def attack(supervised: Supervised, seeds: range) -> dict[str, float]:
    """Has a hostile client for each seed come to a run that an honest one follows; what the most costly moments
    cost.
    """
    process = psutil.Process(supervised.process.pid)
    with supervised.connect() as honest:
        last = wait_for_more(honest, 0)
        files, memory = process.num_fds(), process.memory_info().rss
        most = {"bytes more": 0.0, "seconds until a welcome": 0.0, "seconds until an event": 0.0}
        with ExitStack() as stack:
            there: deque[socket.socket] = deque()
            for seed in seeds:
                drawn = random.Random(seed)
                client = stack.enter_context(raw_client(supervised))
                client.setblocking(False)
                there.append(client)
                if send(client, said(drawn), drawn):
                    there.pop().close()
                if len(there) > AT_ONCE:
                    there.popleft().close()
                if seed % 20 == 0:
                    begun = time.monotonic()
                    supervised.connect().close()
                    welcomed = time.monotonic()
                    last = wait_for_more(honest, last)
                    most["seconds until a welcome"] = max(most["seconds until a welcome"], welcomed - begun)
                    most["seconds until an event"] = max(most["seconds until an event"], time.monotonic() - welcomed)
                    most["bytes more"] = max(most["bytes more"], process.memory_info().rss - memory)
        wait_until(lambda: process.num_fds() <= files, "all files of theirs to be closed")
        most["bytes more"] = max(most["bytes more"], process.memory_info().rss - memory)
        honest.send(Stop())
        for _ in events(honest):
            pass
    return most


def _numbers(connection: RunConnection) -> list[int]:
    return [message.n for message in connection.receive() if isinstance(message, Event)]


def wait_for_more(connection: RunConnection, last: int) -> int:
    """The number of the last event that has come, of which none is missing and one at least is newer than `last`."""
    begun = last

    def come() -> bool:
        nonlocal last
        for number in _numbers(connection):
            assert last in (0, number - 1), "an event is missing"
            last = number
        return last > begun

    wait_until(come, "another event")
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
def test_that_hostile_frames_hold_up_neither_a_run_nor_its_clients(start: Start, seeds: range) -> None:
    supervised = start("forever")
    most = attack(supervised, seeds)
    told = supervised.wait()
    print(f"{len(seeds)} hostile frames: {most}")
    assert "Traceback" not in supervised.log
    assert isinstance(told[-1], RunFinished)
    assert told[-1].outcome == "stopped"
    assert [event.n for event in told] == list(range(1, len(told) + 1))
    assert most["bytes more"] < MOST_MORE_BYTES
    if len(seeds) > DAILY_FRAMES:
        assert most["seconds until a welcome"] < MOST_WAIT_S
        assert most["seconds until an event"] < MOST_WAIT_S
