"""``python one_in_line.py RUN DEVICE [with_worker]``: a process that stands in line for a device until its stdin ends.

Says "waiting" or "turn" as it comes to it; with a worker it forks one as supervisors do, which lives on, and says its
pid.
"""

from __future__ import annotations

import os
import select
import signal
import sys

from engine.system import linux
from tests.engine.runs.queue.lines import a_line


def fork_worker() -> int:
    """A child that has let go of its parent's files, and lives on without it."""
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        linux.release_inherited_files({done})
        os.write(done, b".")
        signal.pause()
    os.read(ready, 1)
    return pid


def main(name: str, device: str, *words: str) -> None:
    line = a_line(name, device)
    said = ""
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        line.step()
        state = "turn" if line.turn else "waiting"
        if state != said:
            print(state, flush=True)
            said = state
            if "with_worker" in words:
                print(fork_worker(), flush=True)
    line.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
