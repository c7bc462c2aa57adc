"""What streaming its events costs a training, as a share of its processor time.

    python tests/benchmarks/streaming_cost.py [--pairs N] [--epochs N]

Counted by the clocks of the threads that do it, in real runs of `mnist_cnn` on the sample dataset: the training
thread's time for taking up and handing over metrics, the worker's channel threads, and the supervisor's loop with its
log and its socket, without a reader and with one. As a check, the worker's whole processor time per step with events is
set against runs without any step events, in turn; that difference is only as good as the machine is quiet.
The aim is 0.5 %; the exit code is 1 where the counted share misses it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.contract import paths
from engine.contract.connection import NotRunning, RunConnection
from engine.contract.job import Job
from engine.contract.runs import RunFolder, create_run
from engine.contract.worker import WorkerSpec
from engine.supervisor import imports
from engine.supervisor.environment import describe
from engine.supervisor.supervisor import Supervisor

AIM_SHARE = 0.005
HERE = Path(__file__)


def told(spec: WorkerSpec, channel: socket.socket) -> int:
    """A worker that counts what its events cost it."""
    from engine.training import loop, report
    from engine.training.worker import run

    spent = {"settling": 0.0, "channel": 0.0}

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            begun = time.thread_time()
            try:
                return function(*arguments)
            finally:
                spent["settling"] += time.thread_time() - begun

        return call

    def closing(reporter: report.Reporter) -> None:
        for thread in threading.enumerate():
            if thread.name in ("report", "commands") and thread.ident is not None:
                spent["channel"] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        close(reporter)

    close = report.Reporter.close
    report.Reporter.close = closing  # type: ignore[method-assign]
    loop.Loop._settle = timed(loop.Loop._settle)  # type: ignore[method-assign]
    return counted(spec, channel, run, spent)


def silent(spec: WorkerSpec, channel: socket.socket) -> int:
    """A worker that tells of no step between the first and the last of each epoch."""
    from engine.training import loop
    from engine.training.worker import run

    loop.REPORT_S = float("inf")
    return counted(spec, channel, run, {})


def counted(spec: WorkerSpec, channel: socket.socket, run: Callable[..., int], spent: dict[str, float]) -> int:
    begun = time.process_time()
    code = run(spec, channel)
    result = {"worker": time.process_time() - begun, **spent}
    Path(spec.run_folder, "spent.json").write_text(json.dumps(result))
    return code


def supervise(folder: str, worker: str) -> int:
    """In a process of its own: the supervisor, and what its loop has used of the processor."""
    run = RunFolder(folder)
    job = run.job()
    assert job is not None
    imports.import_all(imports.LIGHT)
    begun = time.process_time()
    code = Supervisor(run, job, worker=f"streaming_cost:{worker}", modules=()).run_to_end()
    spent = json.loads((run.path / "spent.json").read_text())
    (run.path / "spent.json").write_text(json.dumps(spent | {"supervisor": time.process_time() - begun}))
    return code


def measure(job: Job, worker: str, *, reader: bool) -> dict[str, float]:
    """Runs `job` once and returns seconds of processor time, by who used them."""
    run = create_run(job)
    command = [sys.executable, str(HERE), "--supervise", str(run.path), "--worker", worker]
    with (run.path / "supervisor.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    while reader and process.poll() is None:
        try:
            connection = RunConnection(run)
        except NotRunning:
            time.sleep(0.02)
            continue
        with connection:
            while not connection.closed:
                select.select([connection], [], [], 5.0)
                connection.receive()
        break
    if process.wait() != 0:
        sys.exit((run.path / "supervisor.log").read_text())
    spent: dict[str, float] = json.loads((run.path / "spent.json").read_text())
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--supervise", metavar="RUN_FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--worker", default="told", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.supervise:
        return supervise(options.supervise, options.worker)
    job = Job(dataset=str(paths.sample_dataset()), model="mnist_cnn", epochs=options.epochs)
    facts = describe(None)
    print(f"{facts['cpu']}, {facts['cores']} cores, {platform.platform()}, load {os.getloadavg()[0]:.1f}")
    print(f"Python {facts['python']}, torch {facts['torch']}; {job.model}, batch {job.batch_size}, {job.epochs} epochs")
    with tempfile.TemporaryDirectory() as home:
        os.environ["FOOTPLATE_HOME"] = home
        turns = [
            (
                measure(job, "told", reader=False),
                measure(job, "told", reader=True),
                measure(job, "silent", reader=False),
            )
            for _ in range(options.pairs)
        ]
    worst = 0.0
    for place, name in ((0, "no reader"), (1, "one reader")):
        parts = {
            part: statistics.median(turn[place][part] / turn[place]["worker"] for turn in turns)
            for part in ("settling", "channel", "supervisor")
        }
        total = sum(parts.values())
        worst = max(worst, total)
        shown = ", ".join(f"{part} {share:.3%}" for part, share in parts.items())
        print(f"{name:11} {total:.3%} of the worker's processor time ({shown})")
    against = [turn[1]["worker"] / turn[2]["worker"] - 1 for turn in turns]
    print(
        f"check       {statistics.median(against):+.2%} against no step events ({min(against):+.2%} to {max(against):+.2%})"
    )
    print(f"aim {AIM_SHARE:.1%}: {'met' if worst <= AIM_SHARE else 'missed'}")
    return 0 if worst <= AIM_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
