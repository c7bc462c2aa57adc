"""Start of an execution of the run in a folder."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path

from engine.contract.events import Failed, RunFinished
from engine.contract.job import load_job
from engine.contract.problems import errors
from engine.runs.folder import RunFolder
from engine.runs.resume import last_execution
from engine.supervisor.event_log import EventLog
from engine.supervisor.supervisor import DRAIN_S, Distribute, Supervisor
from engine.system import file_locks, stdio

EXIT_TIMEOUT_S = 2 * DRAIN_S
"""Maximum time to wait for the previous execution's supervisor to exit after its last event, in seconds."""
_POLL_S = 0.05
_REFUSED = 2


def supervise(folder: Path, *, modules: tuple[str, ...] | None = None, distribute: Distribute | None = None) -> int:
    """Run the job in `folder` as its next execution, and return the exit code.

    If another process is running it, report this and return an error code. See `Supervisor` for the other arguments.
    """
    stdio.ignore_output_errors()
    faulthandler.enable(all_threads=False)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # closing the terminal doesn't end the run
    run = RunFolder(folder.absolute())
    if not _lock_run(run):
        print(f"{run.run_id} is already running in another process.", file=sys.stderr)
        return _REFUSED
    job, problems = load_job(run.job_file)
    if job is None:
        cause = " ".join(map(str, errors(problems)))
        log_failed_start(run, cause)
        print(cause, file=sys.stderr)
        return _REFUSED
    return Supervisor(run, job, modules=modules, distribute=distribute).run_to_end()


def _lock_run(run: RunFolder) -> bool:
    """Lock the run for this process, because a log must have a single writer.

    Returns False if another process has the lock. The lock on the folder lasts as long as this process. On file systems
    without locks, `supervisor.json` shows whether another supervisor is alive. If the supervisor of the previous
    execution has already logged its end, this waits until it has exited.
    """
    descriptor = os.open(run.path, os.O_RDONLY) if sys.platform != "win32" else -1
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while not _try_lock(descriptor) or run.is_supervised():
        if not isinstance(run.last_event(), RunFinished) or time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _try_lock(descriptor: int) -> bool:
    """Try to lock a folder. Return True if it succeeds, or if the system or the file system has no such locks."""
    if sys.platform == "win32":
        return True
    try:
        return file_locks.try_lock(descriptor)
    except OSError as error:
        print(f"The run folder can't be locked: {error}", file=sys.stderr)
        return True


def log_failed_start(run: RunFolder, cause: str) -> None:
    """Log an execution that failed before its supervisor could start."""
    execution = last_execution(run) + 1  # read before another event becomes the last one
    log = EventLog(run.events_file)
    log.append(Failed(cause=cause))
    log.append(RunFinished(outcome="failed", execution=execution, cause=cause))
    log.close()
