"""Protection of this process's loopback connections against other users of the machine (Linux only).

gloo does not authenticate its peers. Any process that connects first takes the place of a rank, and listening sockets
accept connections until there are no file descriptors left. Therefore the user of each peer is determined before data
is exchanged, and listening sockets reject connections afterwards.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_ESTABLISHED, _LISTENING = "01", "0A"
"""Codes of the states "established" and "listening" in /proc/net/tcp (proc(5))."""
_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
"""Program for a socket filter (SO_ATTACH_FILTER in socket(7)) that drops all packets, so that connecting fails.

It consists of a single instruction, which returns 0.
"""


class ForeignPeerError(PermissionError):
    """Raised when a connection is from another user of the machine."""


class _TcpSocket(NamedTuple):
    """Row of /proc/net/tcp. Addresses are in the format of this file."""

    local: str
    remote: str
    state: str
    uid: int
    inode: int


@contextmanager
def same_user_only() -> Iterator[None]:
    """Context manager that allows only connections with processes of the same user.

    When it ends, all connections made inside it are checked. From then on, sockets that started to listen inside it
    refuse all new connections.

    Raises:
        ForeignPeerError: A peer belongs to another user.
    """
    if sys.platform != "linux":
        yield
        return
    existing_inodes = _list_socket_descriptors().keys()
    yield
    descriptors = {inode: fd for inode, fd in _list_socket_descriptors().items() if inode not in existing_inodes}
    sockets = _read_tcp_sockets()
    opened = [each for each in sockets if each.inode in descriptors]
    _refuse_foreign_peers(opened, sockets)
    for each in opened:
        if each.state == _LISTENING:
            with suppress(PermissionError):  # hardened kernels allow socket filters only for root
                refuse_connections(descriptors[each.inode])


def _refuse_foreign_peers(opened: list[_TcpSocket], sockets: list[_TcpSocket]) -> None:
    """Raise ForeignPeerError if the peer of an established connection in `opened` belongs to another user.

    `sockets` are all sockets of this machine. The user of a peer that isn't among them, such as one on another machine,
    is unknown. Such peers are accepted.
    """
    users = {(each.local, each.remote): each.uid for each in sockets}
    for each in opened:
        uid = users.get((each.remote, each.local), os.getuid())  # of the peer, whose addresses are swapped
        if each.state == _ESTABLISHED and uid != os.getuid():
            raise ForeignPeerError(
                f"Another user of this machine (user id {uid}) has connected to the run. It stops, since that user could "
                "read or change the training. Ask the machine's administrator."
            )


def refuse_connections(listener: int) -> None:
    """Make the listening socket with the file descriptor `listener` refuse new connections.

    The code that accepts connections from the socket gets no error, and existing connections remain.
    """
    program = ctypes.create_string_buffer(_DROP_ALL)
    # struct sock_fprog: the number of instructions, and the address of the program
    filter_ = struct.pack("HP", 1, ctypes.addressof(program))
    with socket.socket(fileno=os.dup(listener)) as duplicate:
        duplicate.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filter_)


def _list_socket_descriptors() -> dict[int, int]:
    """Return the file descriptor of each of this process's sockets, by the socket's inode."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:["):
                found[int(target[8:-1])] = int(name)
    return found


def _read_tcp_sockets() -> list[_TcpSocket]:
    """Return all TCP sockets of this network namespace, also those of other users."""
    found = []
    for file in (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6")):
        with suppress(OSError):
            for line in file.read_text().splitlines()[1:]:
                _slot, local, remote, state, _queues, _timer, _retransmits, uid, _timeout, inode, *_ = line.split()
                found.append(_TcpSocket(local, remote, state, int(uid), int(inode)))
    return found
