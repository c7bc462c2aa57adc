"""Connections between the ranks of a machine over the loopback interface, which other users can reach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch.distributed as dist

from engine.contract.job import Job
from engine.contract.worker import BY_ENVIRONMENT
from engine.strategies import distributed
from engine.strategies.ddp import DataParallelProcesses
from engine.strategies.distributed import LOOPBACK
from engine.system import loopback
from engine.system.loopback import ForeignPeerError, same_user_only
from tests.support.nobody import NOBODY
from tests.support.specs import make_worker_spec

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(60),
]
CONNECT = """
import os, socket, sys
user, host, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
socket.socket(family).close()  # what it imports can be read before
os.setuid(user)
connection = socket.socket(family)  # which belongs to the other user
connection.connect((host, port))
sys.stdin.read()
"""


def accept_from(listener: socket.socket, user: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    peer = subprocess.Popen(
        [sys.executable, "-c", CONNECT, str(user), *map(str, listener.getsockname()[:2])],
        stdin=subprocess.PIPE,
    )
    listener.settimeout(20)
    connection, _ = listener.accept()
    return connection, peer


def end(connection: socket.socket, peer: subprocess.Popen[bytes]) -> None:
    connection.close()
    assert peer.stdin is not None
    peer.stdin.close()
    peer.wait(10)


def test_ranks_of_one_machine_ignore_other_network_interfaces(
    job: Callable[..., Job], start: Callable[..., Any]
) -> None:
    start(job(cpus=2, strategy="ddp", batch_size=72, epochs=1), environment={"GLOO_SOCKET_IFNAME": "eth7"}).completed()


@pytest.mark.parametrize("rendezvous", ["file", BY_ENVIRONMENT])
def test_setup_confines_only_local_runs_to_the_loopback_interface(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rendezvous: str
) -> None:
    variables = {"GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": "eth7", "NCCL_COMM_ID": "10.0.0.1:5000"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    place = str(tmp_path / rendezvous) if rendezvous == "file" else rendezvous
    strategy = DataParallelProcesses(
        make_worker_spec(Job.from_fields(devices=("cpu",), strategy="ddp"), rendezvous=place)
    )
    strategy.setup()
    dist.destroy_process_group()
    confine = Mock(return_value=nullcontext())
    monkeypatch.setattr(distributed, "same_user_only", confine)
    monkeypatch.setattr(distributed, "init_device_mesh", Mock())
    strategy.create_mesh()
    assert confine.called == (rendezvous == "file")
    found = os.environ.get("NCCL_SOCKET_IFNAME"), os.environ.get("NCCL_COMM_ID")
    assert found == ((LOOPBACK, None) if rendezvous == "file" else ("eth7", "10.0.0.1:5000"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_peer_of_another_user_is_refused(host: str) -> None:
    if os.geteuid() != 0 or (host == "::1" and not socket.has_dualstack_ipv6()):
        pytest.skip("only root can act as another user, and some systems have no IPv6")
    check = same_user_only()
    check.__enter__()
    with socket.create_server((host, 0), family=socket.AF_INET6 if host == "::1" else socket.AF_INET) as listener:
        connection, peer = accept_from(listener, NOBODY)
        with pytest.raises(ForeignPeerError, match=str(NOBODY)):
            check.__exit__(None, None, None)
    end(connection, peer)


def test_listener_closes_after_ranks_have_connected() -> None:
    earlier = socket.create_server(("127.0.0.1", 0))
    with same_user_only():
        listener = socket.create_server(("127.0.0.1", 0))
        connection, peer = accept_from(listener, os.getuid())
    with listener, earlier:
        socket.create_connection(earlier.getsockname(), timeout=10).close()
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.getsockname(), timeout=1.5)
        connection.sendall(b"still connected")
        end(connection, peer)


def test_kernel_without_socket_filters_for_users_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_listener: int) -> None:
        raise PermissionError

    monkeypatch.setattr(loopback, "refuse_connections", refuse)
    with same_user_only():
        listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname(), timeout=10):
        pass
