"""One execution of a run, from its folder alone."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from engine.contract.events import ENCODE, Failed, RunFinished
from engine.contract.job import load_job
from engine.contract.problems import errors
from engine.contract.runs import RunFolder
from engine.supervisor import stdio
from engine.supervisor.supervisor import Supervisor


def supervise(folder: Path, *, tcp: bool = False, modules: tuple[str, ...] | None = None) -> int:
    """Runs the job of `folder` to its end; see `Supervisor`."""
    stdio.make_forgiving()
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a terminal that is closed is none of our business
    run = RunFolder(folder.absolute())
    job, problems = load_job(run.job_file)
    if job is None:
        cause = " ".join(map(str, errors(problems)))
        _close_unstarted(run, cause)
        print(cause, file=sys.stderr)
        return 2
    return Supervisor(run, job, tcp=tcp, modules=modules).run_to_end()


def _close_unstarted(run: RunFolder, cause: str) -> None:
    """Leaves a log that says why there was nothing to run."""
    now = time.time()
    events = (Failed(n=1, time=now, cause=cause), RunFinished(n=2, time=now, outcome="failed", cause=cause))
    if not run.events_file.exists():
        run.events_file.write_bytes(b"".join(ENCODE.encode(event) + b"\n" for event in events))
