"""Connections of another user to the ranks of a run, whose ports require no password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from engine.contract.events import LogLine
from engine.contract.job import Job
from engine.processes.group import PRIVATE_NETWORK
from engine.system import paths
from tests.faults.conftest import StartRun
from tests.faults.real_runs import RealRun
from tests.support.nobody import NOBODY

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can act as another user"),
]

INTRUDER = """
import errno, json, os, resource, socket, struct, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
os.setgroups([])
os.setuid(int(sys.argv[1]))
held, received = [], 0
for line in sys.stdin:  # a port
    for number in range(1000):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", int(line)))
        held.append(client)
    for number, client in enumerate(held[-1000:]):
        try:
            client.send(struct.pack("<q", number % 16))  # gloo's number of a connection
        except OSError:
            pass
connected = 0
for client in held:
    try:
        client.getpeername()
        connected += 1
        received += len(client.recv(65536))
    except OSError:
        pass
print(json.dumps({"tried": len(held), "connected": connected, "received": received}))
"""


def find_listening_ports(run: RealRun) -> set[int]:
    """Find the TCP ports on which a run's workers listen, in any network namespace."""
    ports = set()
    for process in run.workers().values():
        with suppress(OSError):
            folder = Path("/proc", str(process.pid))
            sockets = {os.readlink(file) for file in (folder / "fd").iterdir()}
            rows = [line.split() for line in (folder / "net/tcp").read_text().splitlines()[1:]]
            ports |= {int(row[1][-4:], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}
    return ports


@contextmanager
def start_intruder(run: RealRun, result: dict[str, int]) -> Iterator[None]:
    """Make another user open up to 1,000 connections to each port on which the run's workers listen.

    When the context ends, the counts "tried", "connected" and "received" are added to `result`.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", INTRUDER, str(NOBODY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    stdin = process.stdin
    has_ended = threading.Event()

    def watch() -> None:
        known: set[int] = set()
        while not has_ended.wait(0.002):
            for port in find_listening_ports(run) - known:
                known.add(port)
                stdin.write(f"{port}\n".encode())
                stdin.flush()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        watcher.join()
        output, _ = process.communicate()
        result.update(json.loads(output))


@pytest.mark.long
def test_ranks_in_private_network_compile_their_model(start_run: StartRun, images: Path) -> None:
    fields = {"dataset": str(images), "model": "mnist_cnn", "image_size": 28, "batch_size": 8, "epochs": 2}
    run = start_run(Job.from_fields(**fields, strategy="ddp", devices=("cpu", "cpu"), compile="on", cpu_threads=1))
    run.completed(patience_s=300)
    if not any(line.text == PRIVATE_NETWORK for line in run.list_events(LogLine)):
        pytest.skip("this system allows no private network")
    assert list((paths.cache_folder() / "compiled").rglob("*.so"))


def test_run_is_undisturbed_by_connections_of_another_user(
    start_run: StartRun, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start a run whose environment names network interfaces that don't exist in its private network."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "ib0")
    monkeypatch.setenv("NCCL_COMM_ID", "10.0.0.1:4000")
    job = Job.from_fields(
        dataset=str(images),
        model="mnist_cnn",
        image_size=28,
        batch_size=8,
        epochs=8,
        strategy="ddp",
        devices=("cpu", "cpu"),
        restarts=0,
        cpu_threads=1,
    )
    run = start_run(job)
    result: dict[str, int] = {}
    with start_intruder(run, result):
        finished = run.wait_for_end()
    assert (finished.outcome, finished.cause) == ("completed", "")
    assert result["tried"] >= 2000, "a port of each rank"
    if any(line.text == PRIVATE_NETWORK for line in run.list_events(LogLine)):
        assert (result["connected"], result["received"]) == (0, 0)
