"""Checks that run on a machine before it trains: its facts, and its network connections to others."""

from __future__ import annotations

import select
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from engine.checks.node_checks import inputs_of, versions
from engine.contract.job import Job
from engine.contract.nodes import NodeFacts
from engine.contract.protocol import ENCODE
from engine.machines import addresses
from engine.machines.devices import snapshot
from engine.system import paths
from engine.system.decode_errors import NOT_DECODED

_LISTEN_S = 20.0
"""Seconds for which a machine listens to others that try to reach it."""
_REACH_S = 5.0
_GREETING = b"footplate\n"


def print_facts(dataset: str, address: str) -> int:
    """Print this machine's `NodeFacts`, with the digest of `dataset` if it is named, and return the exit code."""
    local_address, came_from = addresses.connection_addresses()
    problem, driver = "", ""
    gpus: tuple[str, ...] = ()
    try:
        if address or local_address:
            addresses.interface_of(address or local_address)
    except ValueError as error:
        problem = str(error)
    try:
        state = snapshot()
    except (OSError, subprocess.SubprocessError, *NOT_DECODED) as error:
        problem = problem or f"Its devices could not be read: {error}"
    else:
        gpus, driver = tuple(gpu.name for gpu in state.gpus), state.nvml.driver_version or ""
    facts = NodeFacts(
        versions=versions(),
        inputs=inputs_of(Job.from_fields(dataset=dataset)) if dataset else {},
        address=address or local_address,
        client_address=came_from,
        free_bytes=shutil.disk_usage(_existing_folder(paths.home())).free,
        gpus=gpus,
        driver=driver,
        problem=problem,
        time=time.time(),
    )
    print(ENCODE.encode(facts).decode(), flush=True)
    return 0


def listen(address: str, port: int) -> int:
    """Print the port and accept connections for `_LISTEN_S`, or until standard input ends; return the exit code."""
    try:
        listener = addresses.listen(address, port)
    except OSError as error:
        print(f"can't listen on {address}, port {port}: {error.strerror or error}", file=sys.stderr)
        return 1
    with listener:
        print(listener.getsockname()[1], flush=True)
        deadline = time.monotonic() + _LISTEN_S
        while (remaining := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([listener, sys.stdin], [], [], remaining)
            if sys.stdin in ready:  # its end
                break
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(_GREETING)
    return 0


def reach(address: str, port: int) -> int:
    """Return 0 if another machine's `listen` answers at `address`."""
    try:
        with socket.create_connection((address, port), _REACH_S) as connection:
            return 0 if connection.recv(len(_GREETING)) == _GREETING else 1
    except OSError as error:
        print(error.strerror or error, file=sys.stderr)
        return 1


def _existing_folder(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())
