"""Sockets on which supervisors listen."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.supervisor.endpoint import open_endpoint, remove_stale_sockets
from engine.system import paths


@pytest.mark.parametrize("tcp", [False, True])
def test_endpoint_uses_loopback_if_the_socket_path_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tcp: bool
) -> None:
    if not tcp:  # otherwise, loopback was requested
        deep = tmp_path / ("d" * 100)
        deep.mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    endpoint = open_endpoint(tmp_path, tcp=tcp)
    try:
        kind, port, token = endpoint.text.split(":")
        assert kind == "tcp"
        assert len(token) > 30
        assert token == endpoint.token
        assert endpoint.listener.getsockname() == ("127.0.0.1", int(port))
    finally:
        endpoint.close()


def test_endpoint_admits_only_the_same_user(tmp_path: Path) -> None:
    endpoint = open_endpoint(tmp_path)
    first, second = socket.socketpair()
    with first, second:
        assert endpoint.admits(second)
    user = os.getuid()
    other = SimpleNamespace(getsockopt=lambda *_: struct.pack("3i", user, user + 1, user))  # pid, user and group
    assert not endpoint.admits(other)
    endpoint.close()


def test_endpoint_close_keeps_the_socket_of_the_next_execution(tmp_path: Path) -> None:
    first = open_endpoint(tmp_path)
    assert first.is_reachable
    Path(first.text.removeprefix("unix:")).with_suffix(".part").touch()  # of a supervisor that was killed
    second = open_endpoint(tmp_path)
    assert first.text == second.text
    assert os.stat(second.text.removeprefix("unix:")).st_mode & 0o777 == 0o600
    assert not first.is_reachable
    first.close()
    assert second.is_reachable
    second.close()
    assert not os.path.lexists(second.text.removeprefix("unix:"))


def test_only_sockets_of_ended_supervisors_are_removed(tmp_path: Path) -> None:
    alive, dead = open_endpoint(tmp_path / "alive"), open_endpoint(tmp_path / "dead")
    dead.listener.close()
    other = paths.runtime_folder() / "other.sock"
    other.touch()
    busy = paths.runtime_folder() / "busy.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as waiting:
        server.bind(str(busy))
        server.listen(0)
        waiting.connect(str(busy))  # the server accepts no other connection now
        remove_stale_sockets()
    assert (alive.is_reachable, dead.is_reachable, other.exists(), busy.exists()) == (True, False, True, True)
    busy.unlink()
    alive.close()
