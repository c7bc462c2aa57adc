"""Watcher process that kills the processes which a test process has started, if the test process is killed itself.

`python orphans.py MARK PID` watches the process PID.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

VARIABLE = "FOOTPLATE_TESTS"
"""Environment variable with the mark of all processes that the tests of a process start."""
MAX_ROUNDS = 100
"""Maximum number of rounds in which processes are killed, since a process in a system call may stay for long."""
_PR_SET_PDEATHSIG = 1


@contextmanager
def kill_orphans(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start a watcher that kills the processes started in the context if this process is killed.

    Only the main thread may enter the context, because the watcher acts when the thread that started it ends.
    """
    if sys.platform != "linux":
        yield
        return
    mark = uuid.uuid4().hex
    with subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, mark, str(os.getpid())], start_new_session=True
    ) as process:
        patch.setenv(VARIABLE, mark)
        try:
            yield
        finally:
            process.kill()


def _main(mark: str, parent: int) -> None:
    """Wait until the parent process has exited, then kill the processes with `mark`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() == parent:
        signal.sigwait({signal.SIGTERM})
    for _ in range(MAX_ROUNDS):  # until none of them has started another one meanwhile
        if not (left := _find_marked_processes(mark)):
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _find_marked_processes(mark: str) -> list[int]:
    """Return the ids of the running processes with `mark` in their environment."""
    variable, found = f"{VARIABLE}={mark}".encode(), []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            if variable in Path("/proc", pid, "environ").read_bytes().split(b"\0"):
                found.append(int(pid))
    return found


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
