"""Misbehaving clients, which must not affect the training of a real run."""

from __future__ import annotations

import os
import select
import socket
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress

import pytest

from engine.contract.events import ENCODE as ENCODE_EVENT
from engine.contract.events import LogLine, StepMetrics, Warned
from engine.contract.protocol import COMMANDS_ONLY, ENCODE, Goodbye, Hello, Welcome
from engine.runs.connection import RunConnection
from engine.runs.folder import create_run
from engine.supervisor.server import MAX_CLIENTS
from tests.faults.conftest import Make, Uninterrupted
from tests.faults.damage import Gate
from tests.faults.real_runs import RealRun, Starter, assert_same_checkpoints
from tests.support.cases import mark_long_cases
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.faults

EPOCHS = 18
"""Number of epochs. The run has 108 steps."""
CONNECTED, LEFT = 36, 72
"""Steps after which the clients connect and leave."""
SLOWED = 5.0
SLOWED_S = 1.0
"""Permitted slowdown of a step: a factor and an additional number of seconds.

Clients use CPU cores of the machine, so some slowdown is normal. Waiting for a client would take five seconds.
"""
HELLO = ENCODE.encode(Hello()) + b"\n"


def connected(run: RealRun) -> socket.socket:
    supervisor = run.folder.supervisor()
    assert supervisor is not None
    client = socket.socket(socket.AF_UNIX)
    client.connect(supervisor.endpoint.removeprefix("unix:"))
    return client


@contextmanager
def connect_silent_clients(run: RealRun) -> Iterator[None]:
    """Connect clients that request a long log but never read it."""
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connected(run)).sendall(HELLO)
        yield


@contextmanager
def send_garbage(run: RealRun) -> Iterator[None]:
    """Send garbage over four connections at a time, and reconnect after each rejection."""
    over = threading.Event()
    noise = os.urandom(1 << 16) + b"\n" + b"[" * (1 << 16) + b"\n" + HELLO

    def pester() -> None:
        while not over.is_set():
            with suppress(OSError), connected(run) as client:
                client.sendall(noise)
            over.wait(0.05)  # leave the cores to the training

    threads = [threading.Thread(target=pester) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def connect_hundred_clients(run: RealRun) -> Iterator[None]:
    """Connect a hundred clients, and check that `MAX_CLIENTS` can follow the run and the others get a reason."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RunConnection(run.folder)) for _ in range(100)]
        first = [next(iter(receive_messages(client))) for client in clients]
        refused = [message for message in first if isinstance(message, Goodbye)]
        assert sum(isinstance(message, Welcome) for message in first) == MAX_CLIENTS
        assert {message.reason for message in refused} == {f"{MAX_CLIENTS} clients are already connected"}
        assert len(refused) == 100 - MAX_CLIENTS
        yield


def receive_messages(client: RunConnection) -> list[object]:
    while True:
        assert select.select([client], [], [], PATIENCE_S)[0]
        if messages := client.receive():
            return list(messages)


@pytest.fixture
def waiting_run(job: Make, starter: Starter, runs: list[RealRun], gate: Gate, stepwise: dict[str, str]) -> RealRun:
    """Start a run that waits after step `CONNECTED`. Its log of 8 MiB is larger than the buffer of a socket."""
    run = RealRun(starter, create_run(job(epochs=EPOCHS, checkpoint_steps=0, **stepwise)))
    runs.append(run)
    lines = (ENCODE_EVENT.encode(LogLine(n=n, time=1.0, text="x" * 1000)) + b"\n" for n in range(1, 8001))
    run.folder.events_file.write_bytes(b"".join(lines))
    gate.permit_steps(0)
    run.start()
    gate.permit_steps(CONNECTED, run, saved=False)
    return run


@pytest.mark.parametrize(
    "clients",
    mark_long_cases(
        [connect_silent_clients, send_garbage, connect_hundred_clients],
        everyday=[connect_silent_clients, connect_hundred_clients],
    ),
)
def test_clients_change_neither_training_nor_speed(
    waiting_run: RealRun,
    gate: Gate,
    uninterrupted: Uninterrupted,
    clients: Callable[[RealRun], AbstractContextManager[None]],
) -> None:
    with clients(waiting_run):
        gate.permit_steps(LEFT, waiting_run, saved=False)
        with RunConnection(waiting_run.folder, from_n=COMMANDS_ONLY) as another:
            assert isinstance(receive_messages(another)[0], Welcome), "who only has commands to give has a place"
    gate.permit_all_steps()
    waiting_run.completed()
    took = {event.step: event.data_wait_s + event.compute_s for event in waiting_run.list_events(StepMetrics)}
    alone = [seconds for step, seconds in took.items() if 1 < step <= CONNECTED]
    with_client = [seconds for step, seconds in took.items() if CONNECTED < step <= LEFT]
    assert alone
    assert with_client
    assert statistics.median(with_client) < SLOWED * statistics.median(alone) + SLOWED_S
    assert waiting_run.list_events(Warned) == []
    assert_same_checkpoints(waiting_run.final_checkpoints, uninterrupted(waiting_run.job))
