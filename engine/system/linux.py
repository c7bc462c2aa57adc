"""Features of Linux: process names, signals when the parent exits (prctl(2)), mallopt(3), and scheduling delays."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def name_process(name: str) -> None:
    """Set the name of this process for ps and top, with at most 15 bytes. Only Linux supports this."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def signal_at_parents_death(number: int) -> None:
    """Ask the kernel to send a signal to this process when its parent exits. Only Linux supports this.

    More precisely, the signal is sent when the thread that forked this process exits.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent exits. Exit if the parent `parent_pid` already has.

    More precisely, the process is killed when the thread that forked it exits.
    """
    if sys.platform == "linux":
        signal_at_parents_death(signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)


def keep_freed_memory() -> None:
    """Make malloc keep freed memory for later allocations. Does nothing without glibc.

    By default, glibc returns the memory of activations to the system after every training step. In the next step, the
    system would zero it and hand it out again page by page.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)  # allocate all blocks on the heap, however large
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)  # return memory only if more than 1 GiB at the end of the heap is free
        mallopt(_M_TOP_PAD, 64 << 20)  # extend the heap by at least 64 MiB at a time


def read_core_wait_s() -> float:
    """Return how long the calling thread has been ready to run without getting a core, in seconds.

    It is 0 on systems other than Linux.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb") as stream:
            return int(stream.read().split()[1]) / 1e9  # nanoseconds in the run queue
    except (OSError, IndexError):
        return 0.0


def count_threads() -> int:
    """Return the number of threads of this process, including those of native libraries."""
    return len(os.listdir("/proc/self/task"))


def release_inherited_files(keep: set[int]) -> None:
    """Release all files that a forked child has inherited, except those in `keep` and the standard streams.

    The file descriptors are redirected to /dev/null instead of closed. Python objects of the parent may still close
    them, and would then close a new file of the child.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        is_open = os.path.exists(f"/proc/self/fd/{fd}")  # the descriptor of the listing itself no longer is
        if fd > 2 and fd != null and fd not in keep and is_open:
            os.dup2(null, fd, inheritable=False)
    os.close(null)
