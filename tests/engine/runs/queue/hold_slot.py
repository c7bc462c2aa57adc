"""Process that holds a queue slot until its standard input is closed.

    python -m … RUN DEVICE [with_worker]

It prints "waiting" or "running" whenever this state changes. With "with_worker", it forks a worker that outlives it,
like those of supervisors, and prints the worker's process id.
"""

from __future__ import annotations

import os
import select
import signal
import sys

from engine.system import linux
from tests.engine.runs.queue.slots import make_slot


def fork_worker() -> int:
    """Fork a child that outlives this process. The child closes all inherited files."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        linux.release_inherited_files({done})
        os.write(done, b".")
        signal.pause()
    os.read(ready, 1)
    return pid


def main(name: str, device: str, *options: str) -> None:
    slot = make_slot(name, device)
    printed = ""
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        slot.poll()
        state = "running" if slot.has_devices else "waiting"
        if state != printed:
            print(state, flush=True)
            printed = state
            if "with_worker" in options:
                print(fork_worker(), flush=True)
    slot.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
