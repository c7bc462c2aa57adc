"""Network addresses and interfaces of this machine."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import psutil

from engine.contract.hosts import FIRST_PORT, PORTS


def connection_addresses() -> tuple[str, str]:
    """Return the local and remote address of the ssh or srun connection through which this process was started.

    Both are "" if there is no such connection. Sources: sshd(8), srun(1).
    """
    if launcher := os.environ.get("SLURM_LAUNCH_NODE_IPADDR"):
        return local_address(launcher), launcher
    parts = os.environ.get("SSH_CONNECTION", "").split()
    if len(parts) != 4:
        return "", ""
    client_address, _client_port, server_address, _server_port = parts
    return server_address, client_address


def local_address(machine: str, port: int = FIRST_PORT) -> str:
    """Return this machine's local address for connections to `machine`.

    No data is sent. Raises OSError.
    """
    family, _, _, _, address = socket.getaddrinfo(machine, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        local: str = probe.getsockname()[0]
    return local


def interface_of(address: str) -> str:
    """Return the name of the network interface with this `address`.

    Raises ValueError, whose message lists the existing addresses.
    """
    interfaces = {
        each.address.partition("%")[0]: name
        for name, addresses in psutil.net_if_addrs().items()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }
    if address not in interfaces:
        existing = ", ".join(f"{each} ({name})" for each, name in interfaces.items())
        raise ValueError(f"No interface has the address {address}; there are {existing}")
    return interfaces[address]


def has_infiniband() -> bool:
    """Return True if this machine has InfiniBand or RoCE, which NCCL prefers to Ethernet."""
    folder = Path("/sys/class/infiniband")
    return folder.exists() and any(folder.iterdir())


def bind_collectives(address: str, *, infiniband: bool = True) -> None:
    """Make gloo and NCCL use the network interface with this `address`, by setting their environment variables.

    Variables that the user has already set are not changed. If `infiniband` is False, NCCL does not use InfiniBand,
    since all machines must use the same kind of connection. Raises ValueError if there is no such interface.
    """
    interface = interface_of(address)
    defaults = {
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": f"={interface}",  # without "=", NCCL takes every interface whose name begins with it
        "NCCL_SOCKET_FAMILY": "AF_INET6" if ":" in address else "AF_INET",
    }
    if not infiniband:
        defaults["NCCL_IB_DISABLE"] = "1"
    for variable, value in defaults.items():
        os.environ.setdefault(variable, value)


def listen(address: str, first: int, attempt: int = 0) -> socket.socket:
    """Listen on one of the `PORTS` ports from `first` on, only on `address`.

    Each start of the workers (`attempt`) begins with another port, so that its processes never connect to those of the
    previous start. Raises OSError if all ports are in use.
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
