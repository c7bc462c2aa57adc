"""Linux features: process names, signals when the parent exits (prctl(2)), mallopt(3), and scheduling delays."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def name_process(name: str) -> None:
    """Set the name of this process in ps and top, of at most 15 bytes. Only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def signal_at_parents_death(number: int) -> None:
    """Ask the kernel to signal this process when the thread that has forked it exits. Only on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when the thread that has forked it exits. Exit if that has happened."""
    if sys.platform == "linux":
        signal_at_parents_death(signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)


def keep_freed_memory() -> None:
    """Make malloc keep freed memory for later allocations. Do nothing without glibc.

    By default, glibc returns the memory of activations to the system after every training step. The system would then
    zero it and hand it out again page by page.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)  # allocate all blocks on the heap, however large
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_TOP_PAD, 64 << 20)


def waited_for_core_s() -> float:
    """Return the seconds that the calling thread was ready to run but had no core, or 0 on other systems."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def thread_count() -> int:
    """Return the number of threads of this process, including those of native libraries."""
    return len(os.listdir("/proc/self/task"))


def release_inherited_files(keep: set[int]) -> None:
    """Release all inherited files in a forked child, except `keep` and the standard streams.

    The file descriptors are redirected to /dev/null instead of closed: Python objects of the parent may still close
    them, and must not close a file of the child.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != null and fd not in keep and os.path.exists(f"/proc/self/fd/{fd}"):
            os.dup2(null, fd, inheritable=False)
    os.close(null)
