"""Whose processes hold a GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import psutil

from engine.contract.devices import GpuProcess

PROC_PID_INIT_INO = 0xEFFFFFFC  # include/linux/proc_ns.h: the host's own pid namespace
NO_PIDS = (0, 0xFFFFFFFF)
"""Pids that some drivers tell when their structs do not match the library's (R535)."""


class ProcessTable:
    """The processes of one GPU, each looked up once while it stays."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str | None, str | None]] = {}

    def table(self, lists: Iterable[Sequence[Any]], memory_total_bytes: int | None) -> tuple[GpuProcess, ...]:
        """One row per pid of NVML's `lists`; a process in two of them holds its memory once.

        Memory is None where the driver does not tell (Windows' WDDM), or tells more than the GPU has.
        """
        memory: dict[int, int | None] = {}
        for info in (info for infos in lists for info in infos):
            if info.pid in NO_PIDS:
                continue
            used = info.usedGpuMemory
            if used is not None and memory_total_bytes is not None and used > memory_total_bytes:
                used = None
            memory[info.pid] = max((m for m in (memory.get(info.pid), used) if m is not None), default=None)
        self._known = {pid: self._known.get(pid) or user_and_name(pid) for pid in memory}
        return tuple(
            GpuProcess(pid, memory_used_bytes=used, user=self._known[pid][0], name=self._known[pid][1])
            for pid, used in sorted(memory.items())
        )


def user_and_name(pid: int) -> tuple[str | None, str | None]:
    """Who runs `pid` and what it is called; None where that may not be known."""
    if foreign_pids():
        return None, None
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return _or_none(process.username), _or_none(process.name)
    except psutil.Error:
        return None, None


def foreign_pids() -> bool:
    """Whether NVML's pids are not ours: in a container it tells the host's."""
    if sys.platform != "linux":
        return False
    try:
        return os.stat("/proc/self/ns/pid").st_ino != PROC_PID_INIT_INO
    except OSError:
        return True


def _or_none(ask: Any) -> str | None:
    try:
        return str(ask())
    except (psutil.Error, KeyError):  # KeyError: a user id without a name
        return None
