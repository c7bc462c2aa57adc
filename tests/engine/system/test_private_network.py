"""Network namespaces that only the processes in them can reach."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest

from engine.system import private_network
from engine.system.private_network import PrivateNetwork
from tests.support.nobody import NOBODY, run_as_nobody

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs network namespaces"),
    pytest.mark.timeout(60),
]


@pytest.fixture
def network() -> Iterator[PrivateNetwork]:
    try:
        network = PrivateNetwork()
    except OSError as error:
        pytest.skip(f"not allowed here: {error}")
    yield network
    network.close()


def run_in_network(network: PrivateNetwork, act: Callable[[], bytes]) -> bytes:
    """Call a function in a forked process inside the network and return its result."""
    reader, writer = socket.socketpair()
    with reader, writer:
        pid = os.fork()
        if pid == 0:
            try:
                network.enter()
                writer.sendall(act())
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        reader.setblocking(False)
        return reader.recv(1 << 16)


def listen() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_closed_network_leaves_neither_descriptors_nor_processes() -> None:
    def list_own() -> tuple[list[str], list[psutil.Process]]:
        return os.listdir("/proc/self/fd"), psutil.Process().children()

    before = list_own()
    try:
        network = PrivateNetwork()
    except OSError as error:
        pytest.skip(f"not allowed here: {error}")
    assert list_own() != before
    network.close()
    assert list_own() == before


def test_network_whose_creator_is_killed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_network, "_create_and_exit", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(OSError, match="Input/output error"):
        PrivateNetwork()


def test_processes_inside_connect_to_each_other(network: PrivateNetwork) -> None:
    def connect() -> bytes:
        with listen() as listener, socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"met")
                return client.recv(3)

    assert run_in_network(network, connect) == b"met"


def test_processes_outside_can_not_connect(network: PrivateNetwork) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        network.enter()
        listener = listen()
        os.write(writer, str(listener.getsockname()[1]).encode())
        signal.pause()
    try:
        port = int(os.read(reader, 16))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


USE = """
libc = ctypes.CDLL(None)
libc.prctl(4, 1)  # PR_SET_DUMPABLE, which setuid has cleared
try:
    network = PrivateNetwork()
except OSError as error:
    print(json.dumps(str(error)))
    sys.exit()
libc.prctl(1, 9)  # PR_SET_PDEATHSIG
network.enter()
signal_at_death = ctypes.c_int()
libc.prctl(2, ctypes.byref(signal_at_death))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
socket.create_server(("127.0.0.1", 0))
print(json.dumps({
    "ids": [os.getuid(), os.getgid()],
    "capabilities": int(status["CapPrm"], 16),
    "signal": signal_at_death.value,
    "dumpable": libc.prctl(3),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "is_root_known": os.stat("/").st_uid == 0,
}))
"""


def test_user_without_rights_keeps_ids_and_gains_no_capabilities() -> None:
    found = run_as_nobody(USE, before="import ctypes; from engine.system.private_network import PrivateNetwork")
    if isinstance(found, str):
        pytest.skip(f"not allowed here: {found}")
    assert found.pop("interfaces")[0] == "lo"
    assert found == {
        "ids": [NOBODY, NOBODY],
        "capabilities": 0,
        "signal": 9,
        "dumpable": 1,
        "is_root_known": False,
    }
