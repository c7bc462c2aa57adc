"""Workers whose supervisor is gone.

    python -m tests.support.left_alone RUN_FOLDER RANK,… [deaf] [child]

registers itself as the run's supervisor, forks workers as a supervisor would, and exits. The workers don't get the
signal
that normally ends them together with their parent. "deaf" workers ignore SIGTERM; "child" workers have a child process.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.processes.worker_process import run_worker
from engine.runs.folder import RunFolder, SupervisorFile, process_start
from engine.runs.orphans import Orphan, end_orphan
from engine.system import stdio
from tests.support.specs import spec_of

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0


def leave(run: RunFolder, rank: int = 0, *flags: str) -> Orphan:
    """Start an orphaned worker of `run`, wait until it works, and return it."""
    return leave_all(run, (rank,), *flags)[0]


def leave_all(run: RunFolder, ranks: Sequence[int], *flags: str) -> list[Orphan]:
    """Start orphaned workers of several ranks."""
    command = [sys.executable, "-m", "tests.support.left_alone", str(run.path), ",".join(map(str, ranks)), *flags]
    pids = subprocess.run(command, check=True, capture_output=True, cwd=ROOT, timeout=PATIENCE_S).stdout.split()
    return [_at_work(run, rank, int(pid)) for rank, pid in zip(ranks, pids, strict=True)]


def _at_work(run: RunFolder, rank: int, pid: int) -> Orphan:
    deadline = time.monotonic() + PATIENCE_S
    while not run.worker_log(rank).exists() or "at work" not in run.worker_log(rank).read_text():
        assert time.monotonic() < deadline, "the worker did not begin"
        time.sleep(0.01)
    return Orphan(pid=pid, start_time=process_start(pid), run_id=run.run_id, folder=str(run.path), rank=rank)


def put_away(orphan: Orphan) -> None:
    """End an orphaned worker and its child process."""
    end_orphan(orphan, patience_s=0.2)


def work(spec: WorkerSpec, _channel: socket.socket) -> int:
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in sys.argv and os.fork() == 0:
        time.sleep(600)
    print(f"rank {spec.rank} is at work", flush=True)
    time.sleep(600)
    return 0


def main() -> None:
    run = RunFolder(sys.argv[1])
    process = psutil.Process()
    run.write_supervisor(SupervisorFile(pid=process.pid, start_time=process_start(process.pid), endpoint="unix:/none"))
    for rank in map(int, sys.argv[2].split(",")):
        print(_fork(run, rank), flush=True)


def _fork(run: RunFolder, rank: int) -> int:
    spec = spec_of(Job(), run_folder=str(run.path), rank=rank, world_size=2, devices=("cpu",))
    worker_end, supervisor_end = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        stdio.redirect(run.worker_log(rank))
        os._exit(run_worker(spec, "tests.support.left_alone:work", supervisor_end))
    worker_end.close()
    supervisor_end.close()
    return pid


if __name__ == "__main__":
    main()
