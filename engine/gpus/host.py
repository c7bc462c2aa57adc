"""The processes of this host, through psutil."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import psutil

from engine.system.plain_text import encodable, shortened

Answer = TypeVar("Answer")

PROC_PID_INIT_INO = 0xEFFFFFFC  # include/linux/proc_ns.h: the host's own pid namespace
LOAD_OVER_S = 0.5
"""The shortest time to tell a load of: the kernel's clocks tick a hundred times a second."""
FORGET_AFTER_S = 60.0
COMMAND_CHARACTERS = 300


class HostProcess(NamedTuple):
    """What the host knows of a process; None or empty where this user may not know, or it has ended.

    `cpu_percent` is of one core, since the previous look, so the first look tells none. `started` is in seconds since
    the epoch; `ancestors` are pids, the parent's first.
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
class _Seen:
    at: float
    process: psutil.Process | None = None
    parent: int | None = None
    cpu_s: float | None = None
    told: HostProcess = UNKNOWN


class HostProcesses:
    """Looks processes up: once what stays as long as they live, at each look what they use."""

    def __init__(self) -> None:
        self._foreign = foreign_pids()
        self._seen: dict[int, _Seen] = {}

    def look(self, pid: int) -> HostProcess:
        """The process `pid` now, or as it was half a second ago at most, since one process may hold eight GPUs.

        Nothing is known of the host's pids within a container.
        """
        if self._foreign:
            return UNKNOWN
        now = time.monotonic()
        seen = self._seen.get(pid)
        if seen is None:
            self._forget(now)
        if seen is None or now - seen.at >= LOAD_OVER_S:
            seen = self._seen[pid] = _look(pid, seen or _Seen(now), now)
        return seen.told

    def _forget(self, now: float) -> None:
        for pid in [pid for pid, seen in self._seen.items() if now - seen.at > FORGET_AFTER_S]:
            del self._seen[pid]


def foreign_pids() -> bool:
    """Whether NVML's pids are not ours: in a container it tells the host's."""
    if sys.platform != "linux":
        return False
    try:
        return os.stat("/proc/self/ns/pid").st_ino != PROC_PID_INIT_INO
    except OSError:
        return True


def _look(pid: int, before: _Seen, now: float) -> _Seen:
    """`pid` at `now`. Processes are equal only if they were started at the same time, too: a pid may be another's by
    now.
    """
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            same = before.process == process
            told = before.told if same else _meet(process)
            parent = _or_none(process.ppid)
            if not same or parent != before.parent:  # an orphan is handed to another parent
                told = told._replace(ancestors=_ancestors(process))
            cpu_s = _or_none(lambda: sum(process.cpu_times()[:2]))
            used_s = cpu_s - before.cpu_s if same and cpu_s is not None and before.cpu_s is not None else None
            told = told._replace(
                cpu_percent=None if used_s is None else round(100 * used_s / (now - before.at), 1),
                memory_bytes=_or_none(lambda: process.memory_info().rss),
            )
            return _Seen(now, process, parent, cpu_s, told)
    except psutil.Error:
        return _Seen(now)


def _meet(process: psutil.Process) -> HostProcess:
    """What does not change while a process lives."""
    return HostProcess(
        user=_or_none(process.username),
        name=_or_none(lambda: shortened(encodable(_one_line([process.name()])))),
        command=shortened(encodable(_one_line(_or_none(process.cmdline) or []))),
        started=_or_none(process.create_time),
    )


def _ancestors(process: psutil.Process) -> tuple[int, ...]:
    return tuple(ancestor.pid for ancestor in _or_none(process.parents) or [])


def _one_line(arguments: list[str]) -> str:
    """A command line as one line of at most `COMMAND_CHARACTERS`; programs are handed whole scripts as arguments."""
    line = " ".join(" ".join(arguments).split())
    return line if len(line) <= COMMAND_CHARACTERS else f"{line[: COMMAND_CHARACTERS - 1]}…"


def _or_none(ask: Callable[[], Answer]) -> Answer | None:
    try:
        return ask()
    except (psutil.Error, OSError, KeyError):  # KeyError: a user id without a name
        return None
