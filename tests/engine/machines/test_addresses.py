"""Addresses that machines use to connect, with their network interfaces and ports."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack
from types import SimpleNamespace

import psutil
import pytest

from engine.contract.hosts import PORTS
from engine.machines import addresses

LOCAL, REMOTE = "192.0.2.7", "192.0.2.9"
ALONE = "127.0.0.77"
"""Loopback address on which no other process listens."""


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_LAUNCH_NODE_IPADDR", "SSH_CONNECTION", *BOUND):
        monkeypatch.setenv(name, "")  # monkeypatch then restores the variable
        monkeypatch.delenv(name)


BOUND = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_DISABLE")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, ("", "")),
        ({"SSH_CONNECTION": f"{REMOTE} 50022 {LOCAL} 22"}, (LOCAL, REMOTE)),
        ({"SSH_CONNECTION": f"{REMOTE} 50022"}, ("", "")),
        (
            {"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.5", "SSH_CONNECTION": f"{REMOTE} 50022 {LOCAL} 22"},
            ("127.0.0.1", "127.0.0.5"),
        ),
    ],
    ids=["neither", "ssh", "truncated", "srun first"],
)
def test_connection_addresses(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], found: tuple[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert addresses.connection_addresses() == found


def test_collectives_are_bound_to_the_interface_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    addresses.bind_collectives("127.0.0.1", infiniband=False)
    assert [os.environ.get(name) for name in BOUND] == ["lo", "eth7", "AF_INET", "1"]


def test_infiniband_stays_enabled_if_all_machines_have_it() -> None:
    addresses.bind_collectives("127.0.0.1", infiniband=True)
    assert [os.environ.get(name) for name in BOUND] == ["lo", "=lo", "AF_INET", None]


def test_nccl_uses_the_family_of_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(family=socket.AF_INET6, address="fe80::7%eth3")
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth3": [found]})
    addresses.bind_collectives("fe80::7")
    assert [os.environ.get(name) for name in BOUND] == ["eth3", "=eth3", "AF_INET6", None]


def test_addresses_without_an_interface_are_refused() -> None:
    with pytest.raises(ValueError, match=r"203\.0\.113\.1.*127\.0\.0\.1 \(lo\)"):
        addresses.interface_of("203.0.113.1")


def test_listeners_take_the_ports_in_turn() -> None:
    with ExitStack() as listeners:
        probe = listeners.enter_context(addresses.listen(ALONE, 0))
        first = probe.getsockname()[1]
        taken = [listeners.enter_context(addresses.listen(ALONE, first, attempt)) for attempt in (0, 3, 3)]
        assert [each.getsockname()[1] - first for each in taken] == [1, 3, 4]
        for _ in range(PORTS - 4):
            listeners.enter_context(addresses.listen(ALONE, first))
        with pytest.raises(OSError, match="all ports") as refused:
            addresses.listen(ALONE, first)
        assert refused.value.errno == errno.EADDRINUSE
