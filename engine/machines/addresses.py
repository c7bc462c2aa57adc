"""This machine's network addresses, and the interfaces that have them."""

from __future__ import annotations

import errno
import os
import socket

import psutil

from engine.contract.hosts import FIRST_PORT, PORTS


def reached_addresses() -> tuple[str, str]:
    """The address that ssh or srun came to, and the one that it came from; empty where neither started this (sshd(8),
    srun(1)).
    """
    if launcher := os.environ.get("SLURM_LAUNCH_NODE_IPADDR"):
        return towards(launcher), launcher
    parts = os.environ.get("SSH_CONNECTION", "").split()
    return (parts[2], parts[0]) if len(parts) == 4 else ("", "")


def towards(machine: str, port: int = FIRST_PORT) -> str:
    """The address from which this machine reaches another one. Nothing is sent. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(machine, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        own: str = probe.getsockname()[0]
    return own


def interface_of(address: str) -> str:
    """The interface that has `address`. Raises ValueError, with the addresses that there are."""
    found = {
        each.address.partition("%")[0]: name
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }
    if address not in found:
        there = ", ".join(f"{one} ({name})" for one, name in found.items())
        raise ValueError(f"No interface has the address {address}; there are {there}")
    return found[address]


def listen(address: str, first: int, attempt: int = 0) -> socket.socket:
    """A socket that listens on `address` alone, at one of the `PORTS` ports from `first` on; each `attempt` begins
    with another, so that nobody who is left of the one before meets it. Raises OSError.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for number in range(PORTS):
        port = first + (attempt + number) % PORTS
        try:
            return socket.create_server((address, port), family=family, backlog=1024)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"all ports from {first} to {first + PORTS - 1} are in use on {address}")
