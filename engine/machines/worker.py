"""A worker that torch's elastic agent has started: it takes its orders from its node, and tells it what it has to
say.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

from engine.contract.protocol import ENCODE
from engine.contract.worker import WorkerSpec
from engine.processes.worker_process import WORKER, run_worker, worker_environment
from engine.runs.folder import RunFolder
from engine.system import linux, stdio


class WorkerHello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's first word to its node, a line of JSON, which answers with its `WorkerSpec`."""

    rank: int
    pid: int


def run(node_socket: str) -> int:
    """Trains as rank RANK. Ends the process where that fails, as a failure that a supervisor has already been told of
    is none for torch to tell.
    """
    linux.die_with_parent(os.getppid())
    os.setpgid(0, 0)
    rank = int(os.environ["RANK"])
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(node_socket)
    channel.sendall(ENCODE.encode(WorkerHello(rank, os.getpid())) + b"\n")
    spec = msgspec.json.decode(_line(channel), type=WorkerSpec)
    stdio.redirect(Path(RunFolder(spec.run_folder).worker_log(rank)))
    os.environ.update(worker_environment(spec))
    code = run_worker(spec, WORKER, channel)
    if code:
        os._exit(code)
    return code


def _line(channel: socket.socket) -> bytes:
    """One line, and nothing of what comes after it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = channel.recv(1)
        if not byte:
            raise EOFError("the node has ended")
        line += byte
    return line
