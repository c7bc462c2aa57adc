"""Worker process that torch's elastic agent starts. The worker gets its spec from the node, and reports to it."""

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
    """First message of a worker to its node, sent as a line of JSON. The node answers with the `WorkerSpec`."""

    rank: int


def run(node_socket: str) -> int:
    """Train as the rank in the environment variable RANK, and return 0.

    If training fails, the supervisor is notified, and the process exits at once, because otherwise torch would report
    the failure again.
    """
    linux.die_with_parent(os.getppid())
    os.setpgid(0, 0)  # so that the node can also kill its child processes
    rank = int(os.environ["RANK"])
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(node_socket)
    channel.sendall(ENCODE.encode(WorkerHello(rank)) + b"\n")
    spec = msgspec.json.decode(_receive_line(channel), type=WorkerSpec)
    stdio.redirect_output(Path(RunFolder(spec.run_folder).worker_log(rank)))
    os.environ.update(worker_environment(spec))
    code = run_worker(spec, WORKER, channel)
    if code:
        os._exit(code)
    return code


def _receive_line(channel: socket.socket) -> bytes:
    """Read a single line, and no byte after it. Raises EOFError."""
    line = b""
    while not line.endswith(b"\n"):
        byte = channel.recv(1)
        if not byte:
            raise EOFError("the node has ended")
        line += byte
    return line
