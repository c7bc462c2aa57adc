"""Processes on this host, read with psutil."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import psutil

from engine.system.plain_text import make_encodable, shorten

Answer = TypeVar("Answer")

PROC_PID_INIT_INO = 0xEFFFFFFC  # include/linux/proc_ns.h: the host's pid namespace
MIN_LOAD_INTERVAL_S = 0.5
"""Minimum time in seconds over which load is measured, since the kernel counts processor time in ticks of 10 ms."""
FORGET_AFTER_S = 60.0
MAX_COMMAND_LENGTH = 300


class HostProcess(NamedTuple):
    """Facts about a process. They are None or empty if the user may not read them or the process has exited.

    Attributes:
        user: Name of the process's user.
        command: Command line, in one line.
        cpu_percent: Load since the previous reading in percent of one core, or None in the first reading.
        memory_bytes: Resident memory.
        started: Start time in seconds since the epoch.
        ancestors: Process ids of its ancestors, starting with the parent.
    """

    user: str | None = None
    name: str | None = None
    command: str = ""
    cpu_percent: float | None = None
    memory_bytes: int | None = None
    started: float | None = None
    ancestors: tuple[int, ...] = ()


UNKNOWN = HostProcess()


@dataclass(frozen=True)
class _Reading:
    """Facts about a process at the time `at` (time.monotonic), and the values that the next reading needs."""

    at: float
    process: psutil.Process | None = None
    parent: int | None = None
    cpu_s: float | None = None
    facts: HostProcess = UNKNOWN


class HostProcesses:
    """Reader of facts about processes. Facts that never change are read only once per process."""

    def __init__(self) -> None:
        self._foreign = has_foreign_pids()
        self._readings: dict[int, _Reading] = {}

    def read(self, pid: int) -> HostProcess:
        """Return the facts about the process `pid`, which are at most half a second old.

        They are cached for this time, since one process may use eight GPUs.
        """
        if self._foreign:  # this namespace may have another process with the same id
            return UNKNOWN
        now = time.monotonic()
        reading = self._readings.get(pid)
        if reading is None:
            self._drop_old_readings(now)
        if reading is None or now - reading.at >= MIN_LOAD_INTERVAL_S:
            reading = self._readings[pid] = _read_process(pid, reading or _Reading(now), now)
        return reading.facts

    def _drop_old_readings(self, now: float) -> None:
        """Drop the readings of processes that have not been read for `FORGET_AFTER_S`."""
        for pid in [pid for pid, reading in self._readings.items() if now - reading.at > FORGET_AFTER_S]:
            del self._readings[pid]


def has_foreign_pids() -> bool:
    """Return True if the process ids that NVML reports belong to another namespace, as in a container."""
    if sys.platform != "linux":
        return False
    try:
        return os.stat("/proc/self/ns/pid").st_ino != PROC_PID_INIT_INO
    except OSError:
        return True  # without access to /proc, nothing is known about the ids


def _read_process(pid: int, before: _Reading, now: float) -> _Reading:
    """Read the facts about the process `pid` at the time `now`.

    `before` is the previous reading. If it is of another process, the pid has been reused, and all facts are read
    again.
    """
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            is_same = before.process == process
            facts = before.facts if is_same else _identify(process)
            parent = _try_read(process.ppid)
            if not is_same or parent != before.parent:  # an orphan gets a new parent
                facts = facts._replace(ancestors=_list_ancestors(process))
            cpu_s = _try_read(lambda: sum(process.cpu_times()[:2]))  # user and system time
            used_s = cpu_s - before.cpu_s if is_same and cpu_s is not None and before.cpu_s is not None else None
            facts = facts._replace(
                cpu_percent=None if used_s is None else round(100 * used_s / (now - before.at), 1),
                memory_bytes=_try_read(lambda: process.memory_info().rss),
            )
            return _Reading(now, process, parent, cpu_s, facts)
    except psutil.Error:
        return _Reading(now)


def _identify(process: psutil.Process) -> HostProcess:
    """Read the facts that never change during the life of a process: user, name, command and start."""
    return HostProcess(
        user=_try_read(process.username),
        name=_try_read(lambda: shorten(make_encodable(_join_arguments([process.name()])))),
        command=shorten(make_encodable(_join_arguments(_try_read(process.cmdline) or []))),
        started=_try_read(process.create_time),
    )


def _list_ancestors(process: psutil.Process) -> tuple[int, ...]:
    """Return the process ids of a process's ancestors, starting with the parent. Empty if they can't be read."""
    return tuple(ancestor.pid for ancestor in _try_read(process.parents) or [])


def _join_arguments(arguments: list[str]) -> str:
    """Join command-line arguments into one line of at most `MAX_COMMAND_LENGTH` characters.

    Arguments may be long scripts.
    """
    line = " ".join(" ".join(arguments).split())
    return line if len(line) <= MAX_COMMAND_LENGTH else f"{line[: MAX_COMMAND_LENGTH - 1]}…"


def _try_read(read: Callable[[], Answer]) -> Answer | None:
    """Return the result of `read`, or None if it fails because of a permission or an exited process."""
    try:
        return read()
    except (psutil.Error, OSError, KeyError):  # KeyError: a user id without a name
        return None
