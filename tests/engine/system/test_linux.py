"""Effects of system calls that exist only in Linux."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from engine.system import linux

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="this is about Linux")

FAULTS = """
import ctypes, resource, sys
from engine.system import linux

if sys.argv[1] == "keep":
    linux.keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]

def use():
    blocks = [libc.malloc(ctypes.c_size_t(16 << 20)) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, 16 << 20)
    for block in blocks:
        libc.free(block)

use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_keep_freed_memory_avoids_page_faults() -> None:
    faults = {
        how: int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)
        for how in ("leave", "keep")
    }
    if faults["leave"] < 10_000:
        pytest.skip("this C library does not give memory back")
    assert faults["keep"] < faults["leave"] / 20


def test_waited_for_core_s_counts_waiting() -> None:
    competitor = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    cores = os.sched_getaffinity(0)
    try:
        core = {min(cores)}
        os.sched_setaffinity(competitor.pid, core)
        os.sched_setaffinity(0, core)
        before, cpu_before = linux.waited_for_core_s(), time.thread_time()
        while time.thread_time() - cpu_before < 0.3:
            pass
        assert linux.waited_for_core_s() - before > 0.05
    finally:
        os.sched_setaffinity(0, cores)
        competitor.kill()
        competitor.wait()
