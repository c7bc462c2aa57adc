"""Effects of system calls that exist only in Linux."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

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


CHILD = """
import _thread, os, sys, time
from engine.system import linux
linux.name_process("footplate-worker")
linux.die_with_parent(int(sys.argv[1]))
_thread.start_new_thread(time.sleep, (60,))  # unknown to the module threading, as the threads of libraries
files = [open(path, "w", buffering=1) for path in sys.argv[2:]]
linux.release_inherited_files({files[0].fileno()})
for file in files:
    print("written", file=file)
print(open("/proc/self/comm").read().strip(), linux.count_threads())
"""


def test_child_has_name_threads_and_only_kept_files(tmp_path: Path) -> None:
    paths = [tmp_path / "kept", tmp_path / "released"]
    done = [
        subprocess.run(
            [sys.executable, "-c", CHILD, str(parent), *map(str, paths)], capture_output=True, text=True, check=False
        )
        for parent in (os.getpid(), os.getppid())
    ]
    assert [(each.returncode, each.stdout) for each in done] == [(0, "footplate-worke 2\n"), (1, "")]
    assert [path.read_text() for path in paths] == ["written\n", ""]


def test_core_wait_counts_waiting() -> None:
    competitors = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    cores = os.sched_getaffinity(0)
    try:
        core = {min(cores)}
        for pid in (0, *(each.pid for each in competitors)):
            os.sched_setaffinity(pid, core)
        before, cpu_before, started = linux.read_core_wait_s(), time.thread_time(), time.monotonic()
        while time.thread_time() - cpu_before < 0.2:
            pass
        waited_s, wall_s = linux.read_core_wait_s() - before, time.monotonic() - started
        assert abs(waited_s - (wall_s - 0.2)) < 0.2 * wall_s
    finally:
        os.sched_setaffinity(0, cores)
        for competitor in competitors:
            competitor.kill()
            competitor.wait()
