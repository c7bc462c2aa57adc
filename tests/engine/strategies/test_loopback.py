"""Sockets on which ranks listen."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from engine.contract.job import Job
from tests.engine.supervisor.supervised import wait_until


@pytest.mark.parametrize(("strategy", "cpus"), [("ddp", 2), ("pipeline", 2), ("fsdp", 2), ("hsdp", 4)])
def test_ranks_listen_on_loopback_only(
    job: Callable[..., Job], start: Callable[..., Any], forker: Any, strategy: str, cpus: int
) -> None:
    group = start(job(cpus=cpus, strategy=strategy, epochs=100_000))
    group.read_steps(1)
    wait_until(lambda: len(psutil.Process(forker.pid).children()) == cpus, "the end of those before")
    workers = psutil.Process(forker.pid).children()
    listening = [
        connection.laddr.ip
        for worker in workers
        for connection in worker.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert all(ipaddress.ip_address(address).is_loopback for address in listening), listening
