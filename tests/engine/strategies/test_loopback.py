"""Connections between the ranks of a machine over the loopback interface, which other users can reach."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from engine.system import loopback
from engine.system.loopback import ForeignPeerError, same_user_only
from tests.support.nobody import NOBODY

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
    pytest.mark.timeout(60),
]
CONNECT = """
import os, socket, sys
user, port = map(int, sys.argv[1:])
socket.socket().close()  # what it imports can be read before
os.setuid(user)
connection = socket.socket()  # which belongs to the other user
connection.connect(("127.0.0.1", port))
sys.stdin.read()
"""


def accept_from(listener: socket.socket, user: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    peer = subprocess.Popen(
        [sys.executable, "-c", CONNECT, str(user), str(listener.getsockname()[1])],
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


def test_peer_of_another_user_is_refused() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    accepted = []
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(ForeignPeerError, match=str(NOBODY)),
        same_user_only(),
    ):
        accepted += accept_from(listener, NOBODY)
    end(*accepted)


def test_listener_closes_after_ranks_have_connected() -> None:
    with same_user_only():
        listener = socket.create_server(("127.0.0.1", 0))
        connection, peer = accept_from(listener, os.getuid())
    with listener:
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
