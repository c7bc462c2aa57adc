"""One execution of a run, from its folder alone."""

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
from engine.supervisor.supervisor import DRAIN_S, Share, Supervisor
from engine.system import stdio

PARTING_S = 2 * DRAIN_S
"""How long the previous execution's supervisor may take to exit after its last event."""
_LOOK_S = 0.05
_REFUSED = 2


def supervise(
    folder: Path, *, tcp: bool = False, modules: tuple[str, ...] | None = None, share: Share | None = None
) -> int:
    """Runs the job of `folder` to its end, as its next execution; see `Supervisor`. Does nothing where another process
    runs it.
    """
    stdio.make_forgiving()
    faulthandler.enable(all_threads=False)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that is closed is none of our business
    run = RunFolder(folder.absolute())
    if not _ours_alone(run):
        print(f"{run.run_id} is already running in another process.", file=sys.stderr)
        return _REFUSED
    job, problems = load_job(run.job_file)
    if job is None:
        cause = " ".join(map(str, errors(problems)))
        close_unstarted(run, cause)
        print(cause, file=sys.stderr)
        return _REFUSED
    return Supervisor(run, job, tcp=tcp, modules=modules, share=share).run_to_end()


def _ours_alone(run: RunFolder) -> bool:
    """Whether nobody else supervises `run`, and from now on cannot: two that write one log would ruin it.

    The folder is locked for as long as this process lives; where it cannot be, the file that tells of a living
    supervisor has to do. One that has said its last word is waited for.
    """
    descriptor = os.open(run.path, os.O_RDONLY) if sys.platform != "win32" else -1
    deadline = time.monotonic() + PARTING_S
    while not _locked(descriptor) or _supervised(run):
        if not isinstance(run.last_event(), RunFinished) or time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _locked(descriptor: int) -> bool:
    """Locks a folder for this process; true as well on systems and file systems that know no such locks."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            print(f"The run folder can't be locked: {error}", file=sys.stderr)
    return True


def _supervised(run: RunFolder) -> bool:
    supervisor = run.supervisor()
    return supervisor is not None and supervisor.alive()


def close_unstarted(run: RunFolder, cause: str) -> None:
    """Leaves a log that says why there was nothing to run."""
    log = EventLog(run.events_file)
    log.append(Failed(cause=cause))
    log.append(RunFinished(outcome="failed", execution=last_execution(run) + 1, cause=cause))
    log.close()
