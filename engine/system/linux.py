"""What only Linux offers: a name for ps, a signal at the parent's death (prctl(2)), memory kept for reuse (mallopt(3)),
how long a thread has waited for a core.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def name_process(name: str) -> None:
    """Names this process in ps and top, by at most 15 bytes. Does nothing elsewhere than on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def signal_at_parents_death(number: int) -> None:
    """Has the kernel send that signal to this process when the thread that started it ends. Nothing elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def die_with_parent(parent_pid: int) -> None:
    """Has the kernel kill this process when the thread that forked it ends; ends now if that is past."""
    if sys.platform == "linux":
        signal_at_parents_death(signal.SIGKILL)
        if os.getppid() != parent_pid:
            os._exit(1)


def keep_freed_memory() -> None:
    """Has malloc keep what is freed for what is allocated next. Nothing where the C library is not glibc.

    Left alone, glibc gives the activations of every training step back to the system, which hands them out again
    page by page, zeroed.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)  # no block is too large for the heap
        mallopt(_M_TRIM_THRESHOLD, 1 << 30)
        mallopt(_M_TOP_PAD, 64 << 20)


def waited_for_core_s() -> float:
    """Seconds in which the calling thread had work to do and no core to do it on, so far; 0 elsewhere than on Linux."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def thread_count() -> int:
    """How many threads this process has, those of native libraries included."""
    return len(os.listdir("/proc/self/task"))


def release_inherited_files(keep: set[int]) -> None:
    """In a forked child: lets go of every inherited file but `keep` and the standard three.

    Their numbers stay taken, by /dev/null, since Python objects of the parent's that are still about may
    close them at any time, and must not then hit a file of the child's own.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd != null and fd not in keep and os.path.exists(f"/proc/self/fd/{fd}"):
            os.dup2(null, fd, inheritable=False)
    os.close(null)
