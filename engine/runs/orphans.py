"""Detection of workers without a supervisor, which occupy devices for nothing.

On Linux, the kernel kills a worker together with the process that forked it, so orphans should not exist. If one exists
anyway (because it was reparented, or the system has no such signal), it is recognized by its name `footplate-w<rank>`
on Linux, or by its command line on other systems, and by its standard output, which is the log of a rank. Workers with
a running supervisor among their ancestors are not orphans.

Only processes of this user that belong to runs in this home are examined. Systems other than Linux have not been
tested.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil

from engine.runs.folder import RunFolder, process_alive, process_start

PATIENCE_S = 5.0
"""Seconds to wait for a worker to exit after SIGTERM, and again after SIGKILL."""
SETTLE_S = 0.3
"""Seconds until a second search, since workers whose supervisor was just killed exit soon."""

_POLL_S = 0.02
_NAME, _SUPERVISOR = "footplate-w", "footplate-run"
_MODULE, _SUPERVISING = "engine.processes.worker_main", "engine.supervisor"
_LOG = re.compile(r"worker-(\d+)\.log")
_DELETED = " (deleted)"


class CannotEnd(Exception):  # noqa: N818 - describes the outcome
    """Raised when a process could not be stopped. The message gives the user the reason."""


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """Worker without a supervisor.

    `folder` is the current folder of its run; `start_time` is the start time of its process.
    """

    pid: int
    start_time: float
    run_id: str
    folder: str
    rank: int


def find_orphans(settle_s: float = SETTLE_S, *, by_name: bool = sys.platform == "linux") -> list[Orphan]:
    """Find orphaned workers, sorted by pid; their child processes are not listed.

    This takes about 20 ms, plus `settle_s` if there are any. With `by_name`, workers are recognized by their name, else
    by their command line.
    """
    found = list(_find(by_name))
    if found:
        time.sleep(settle_s)
        confirmed = set(_find(by_name))
        found = [orphan for orphan in found if orphan in confirmed]
    return sorted(found, key=lambda orphan: orphan.pid)


def end_orphan(orphan: Orphan, patience_s: float = PATIENCE_S) -> None:
    """Terminate an orphan and its children with SIGTERM; after `patience_s`, kill those that remain.

    Does nothing if the orphan has exited, even if its pid has been reused. Raises CannotEnd.
    """
    try:
        process = psutil.Process(orphan.pid)
        if not process_alive(orphan.pid, orphan.start_time):
            return
        remaining = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for hard in (False, True):
        for one in remaining:
            _signal(one, hard)
        deadline = time.monotonic() + patience_s
        while (remaining := [one for one in remaining if _is_running(one)]) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if not remaining:
            return
    pids = ", ".join(str(one.pid) for one in remaining)
    raise CannotEnd(
        f"Process {pids} is still alive {patience_s:g} s after it was killed: it is waiting for the driver or a "
        f"disk, and ends when that answers or the machine restarts."
    )


def _is_running(process: psutil.Process) -> bool:
    """Return True if a process is running; a zombie, which may never be reaped, is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, hard: bool) -> None:
    """Send SIGKILL (`hard`) or SIGTERM to a process; psutil checks again that its pid was not reused."""
    try:
        process.kill() if hard else process.terminate()
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied:
        raise CannotEnd(f"The system does not allow this user to end process {process.pid}.") from None


def _find(by_name: bool) -> Iterator[Orphan]:
    workers = {process.pid: process for process in psutil.process_iter() if _is_worker(process, by_name)}
    for process in workers.values():
        try:
            above = process.parents()
            if any(parent.pid in workers for parent in above) or not _belongs_to_home(process):
                continue
            log = _log_of(process)
            if log is None or _supervised(above, RunFolder(log.parent), by_name):
                continue
            rank = _LOG.fullmatch(log.name)
            assert rank is not None
            yield Orphan(
                pid=process.pid,
                start_time=process_start(process.pid),
                run_id=log.parent.name,
                folder=str(log.parent),
                rank=int(rank[1]),
            )
        except (psutil.Error, OSError):
            continue  # it has exited


def _is_worker(process: psutil.Process, by_name: bool) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.name().startswith(_NAME) if by_name else _MODULE in process.cmdline()
    except psutil.Error:
        return False


def _belongs_to_home(process: psutil.Process) -> bool:
    """Return True if the process belongs to this user and to a run of this home."""
    is_own = process.uids().real == os.getuid() if hasattr(os, "getuid") else process.username() == _user()
    return is_own and process.environ().get("FOOTPLATE_HOME", "") == os.environ.get("FOOTPLATE_HOME", "")


def _user() -> str:
    return psutil.Process().username()


def _log_of(process: psutil.Process) -> Path | None:
    """Return the path of the rank's log that a process writes to, or None."""
    if sys.platform == "linux":
        outputs = [os.readlink(f"/proc/{process.pid}/fd/1").removesuffix(_DELETED)]
    else:
        outputs = [file.path for file in process.open_files()]
    return next((Path(output) for output in outputs if _LOG.fullmatch(Path(output).name)), None)


def _supervised(above: list[psutil.Process], run: RunFolder, by_name: bool) -> bool:
    """Return True if an ancestor of a worker is the supervisor of its run or of another run."""
    supervisor = run.supervisor()
    if supervisor is not None and supervisor.alive() and any(parent.pid == supervisor.pid for parent in above):
        return True
    return any(parent.name() == _SUPERVISOR if by_name else _SUPERVISING in parent.cmdline() for parent in above)
