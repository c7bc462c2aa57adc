"""Workers that are left without their supervisor, and hold their devices for nobody.

On Linux the kernel ends a worker with the process that forked it, so that there should be none; where one is found
all the same (its parent was another by then, or the system has no such signal), it is known by what it is: on Linux
by its name, `footplate-w<rank>`, elsewhere by its command line, and everywhere by its standard output, which goes to
the log of a rank of a run. It is left alone where no process above it is a supervisor that lives.

Only this user's own processes, of runs of this home, are ever looked at. The ways of other systems than Linux have
not been run there.
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
"""How long a worker that was asked to end may take, and then one that was killed."""
SETTLE_S = 0.3
"""A worker counts once it has been found twice, so long apart: one whose supervisor has just been killed is "
"about to end."""

_LOOK_S = 0.02
_NAME, _SUPERVISOR = "footplate-w", "footplate-run"
_MODULE, _SUPERVISING = "engine.processes.worker_main", "engine.supervisor"
_LOG = re.compile(r"worker-(\d+)\.log")
_DELETED = " (deleted)"


class CannotEnd(Exception):  # noqa: N818  (a state of things more than an error)
    """The process goes on; the text says why, in words for the user."""


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A worker without a supervisor. `folder` is where its run's folder is now; `start_time` is the process's own."""

    pid: int
    start_time: float
    run_id: str
    folder: str
    rank: int


def find_orphans(settle_s: float = SETTLE_S, *, by_name: bool = sys.platform == "linux") -> list[Orphan]:
    """The workers that are left alone, by pid; those that such a worker has started are counted with it.

    Takes some 20 ms, and `settle_s` where there are any. `by_name` is how workers are known: else by their command
    lines.
    """
    found = list(_look(by_name))
    if found:
        time.sleep(settle_s)
        again = set(_look(by_name))
        found = [orphan for orphan in found if orphan in again]
    return sorted(found, key=lambda orphan: orphan.pid)


def end_orphan(orphan: Orphan, patience_s: float = PATIENCE_S) -> None:
    """Asks it and all that it has started to end (SIGTERM), and kills what is left of them after `patience_s`.

    Does nothing where it has ended already, be its pid another's by now. Raises CannotEnd.
    """
    try:
        process = psutil.Process(orphan.pid)
        if not process_alive(orphan.pid, orphan.start_time):
            return
        left = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for hard in (False, True):
        for one in left:
            _signal(one, hard)
        deadline = time.monotonic() + patience_s
        while (left := [one for one in left if _lives(one)]) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        if not left:
            return
    pids = ", ".join(str(one.pid) for one in left)
    raise CannotEnd(
        f"Process {pids} is still alive {patience_s:g} s after it was killed: it is waiting for the driver or a "
        f"disk, and ends when that answers or the machine restarts."
    )


def _lives(process: psutil.Process) -> bool:
    """Not so a zombie, which nobody may take note of for long: whoever started it is gone."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, hard: bool) -> None:
    """psutil looks once more that the pid is still this process's."""
    try:
        process.kill() if hard else process.terminate()
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied:
        raise CannotEnd(f"The system does not allow this user to end process {process.pid}.") from None


def _look(by_name: bool) -> Iterator[Orphan]:
    workers = {process.pid: process for process in psutil.process_iter() if _is_worker(process, by_name)}
    for process in workers.values():
        try:
            above = process.parents()
            if any(parent.pid in workers for parent in above) or not _is_ours(process):
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
            continue  # it has ended meanwhile


def _is_worker(process: psutil.Process, by_name: bool) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.name().startswith(_NAME) if by_name else _MODULE in process.cmdline()
    except psutil.Error:
        return False


def _is_ours(process: psutil.Process) -> bool:
    """Whether it belongs to this user and to a run of this home."""
    mine = process.uids().real == os.getuid() if hasattr(os, "getuid") else process.username() == _user()
    return mine and process.environ().get("FOOTPLATE_HOME", "") == os.environ.get("FOOTPLATE_HOME", "")


def _user() -> str:
    return psutil.Process().username()


def _log_of(process: psutil.Process) -> Path | None:
    """The log of a rank that it writes to; None where it writes to none."""
    if sys.platform == "linux":
        outputs = [os.readlink(f"/proc/{process.pid}/fd/1").removesuffix(_DELETED)]
    else:
        outputs = [file.path for file in process.open_files()]
    return next((Path(output) for output in outputs if _LOG.fullmatch(Path(output).name)), None)


def _supervised(above: list[psutil.Process], run: RunFolder, by_name: bool) -> bool:
    """Whether one of the processes above a worker is its run's supervisor, or any."""
    supervisor = run.supervisor()
    if supervisor is not None and supervisor.alive() and any(parent.pid == supervisor.pid for parent in above):
        return True
    return any(parent.name() == _SUPERVISOR if by_name else _SUPERVISING in parent.cmdline() for parent in above)
