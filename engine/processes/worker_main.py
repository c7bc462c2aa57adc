"""``python -m engine.processes.worker_main``: a worker in a new interpreter, where forking is not to be
had.
"""

from __future__ import annotations

import base64
import os
import socket
import sys
import threading

import msgspec
import psutil

from engine.processes.worker_process import SpawnOrders, run_worker
from engine.system import linux, stdio


def main() -> int:
    """Reads its orders from stdin and runs the worker; ends with its supervisor, whatever happens."""
    stdio.make_forgiving()
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=SpawnOrders)
    linux.die_with_parent(orders.parent)
    if sys.platform != "linux":
        threading.Thread(target=_end_with, args=(orders.parent,), name="parent-watch", daemon=True).start()
    if sys.platform == "win32":
        channel = socket.fromshare(base64.b64decode(orders.shared))
    else:
        channel = socket.socket(fileno=orders.fd)
    channel.setblocking(True)
    return run_worker(orders.spec, orders.worker, channel)


def _end_with(parent: int) -> None:
    try:
        psutil.Process(parent).wait()
    except psutil.NoSuchProcess:
        os._exit(1)
    os._exit(1)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of torch's may hold up an orderly end
