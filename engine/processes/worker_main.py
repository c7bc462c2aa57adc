"""Program ``python -m engine.processes.worker_main``, which runs a worker in a new interpreter.

It is used on systems where workers can't be forked.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
import threading

import msgspec
import psutil

from engine.processes.worker_process import SpawnRequest, run_worker
from engine.system import linux, stdio


def main() -> int:
    """Read a `SpawnRequest` from standard input, and run the worker. The worker exits when its parent exits."""
    stdio.ignore_output_errors()
    request = msgspec.json.decode(sys.stdin.buffer.readline(), type=SpawnRequest)
    linux.die_with_parent(request.parent)
    if sys.platform != "linux":
        threading.Thread(target=_exit_after, args=(request.parent,), name="parent-watch", daemon=True).start()
    if sys.platform == "win32":
        channel = socket.fromshare(base64.b64decode(request.shared))
    else:
        channel = socket.socket(fileno=request.fd)
    channel.setblocking(True)
    return run_worker(request.spec, request.worker, channel)


def _exit_after(parent: int) -> None:
    """Wait until the process `parent` exits, then exit this process."""
    try:
        psutil.Process(parent).wait()
    finally:
        os._exit(1)


if __name__ == "__main__":
    stdio.exit_now(main())
