"""What another machine is asked before it is trained on: what it has, and whether others reach it."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from engine.checks.node_checks import inputs_of, versions
from engine.contract.job import Job
from engine.contract.nodes import NodeFacts
from engine.contract.protocol import ENCODE
from engine.machines import addresses
from engine.machines.devices import snapshot
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED

LISTEN_S = 20.0
"""How long a machine listens for others that try to reach it."""
_REACH_S = 5.0
_WORD = b"footplate\n"


def look(dataset: str, address: str) -> int:
    """Prints this machine's `NodeFacts`, with the dataset's digest where one is named."""
    came_to, came_from = addresses.reached_addresses()
    problem, driver = "", ""
    gpus: tuple[str, ...] = ()
    try:
        if address or came_to:
            addresses.interface_of(address or came_to)
    except ValueError as error:
        problem = str(error)
    try:
        seen = snapshot()
    except (OSError, subprocess.SubprocessError, *NOT_DECODED) as error:
        problem = problem or f"Its devices could not be read: {error}"
    else:
        gpus, driver = tuple(f"{gpu.name}" for gpu in seen.gpus), seen.nvml.driver_version or ""
    facts = NodeFacts(
        versions=versions(),
        inputs=inputs_of(Job(dataset=dataset)) if dataset else {},
        address=address or came_to,
        came_from=came_from,
        free_bytes=shutil.disk_usage(_first_there(paths.home())).free,
        gpus=gpus,
        driver=driver,
        problem=problem,
        time=time.time(),
    )
    print(ENCODE.encode(facts).decode(), flush=True)
    return 0


def listen(address: str, port: int) -> int:
    """Listens on one address for `LISTEN_S`, or until standard input ends, and prints the port; 1 where it can't."""
    try:
        listener = addresses.listen(address, port)
    except OSError as error:
        print(f"nobody can listen on {address}, port {port}: {error.strerror or error}", file=sys.stderr)
        return 1
    with listener:
        print(listener.getsockname()[1], flush=True)
        deadline = time.monotonic() + LISTEN_S
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([listener, sys.stdin], [], [], left)
            if sys.stdin in ready:  # its end
                break
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(_WORD)
    return 0


def reach(address: str, port: int) -> int:
    """0 where `listen` answers there."""
    try:
        with socket.create_connection((address, port), _REACH_S) as connection:
            return 0 if connection.recv(len(_WORD)) == _WORD else 1
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        return 1


def facts_from(said: bytes) -> NodeFacts:
    """Raises msgspec.DecodeError, UnicodeDecodeError."""
    return msgspec.json.decode(said, type=NodeFacts)


def _first_there(folder: Path) -> Path:
    return next(one for one in (folder, *folder.parents) if one.exists())
