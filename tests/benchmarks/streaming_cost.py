"""CPU time for metrics and checkpoints as a fraction of a training's CPU time.

    python tests/benchmarks/streaming_cost.py [--pairs N] [--epochs N] [--dataset FOLDER]

Thread clocks measure the CPU time in real runs of `mnist_cnn` on MNIST: in the training thread, reading values from the
device (`.item()`), sending metrics, timing, and copying checkpoints; the checkpoint writer; the worker's channel
threads; the supervisor with log and socket, with and without a reader; and the device sampler. As a check, the worker's
total CPU time is compared with that of runs without all of this. More `--pairs` of runs reduce the noise of this check.
The exit code is 1 if the fraction exceeds 0.5%.
"""

from __future__ import annotations

import argparse
import functools
import json
import select
import socket
import statistics
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.processes import imports
from engine.runs.connection import NotRunning, RunConnection
from engine.runs.folder import RunFolder, create_run
from engine.supervisor.sampling import Sampler
from engine.supervisor.supervisor import Supervisor
from engine.system import paths
from tests.benchmarks.frame import DATASETS, describe_environment, make_parser, use_empty_home

AIM_SHARE = 0.005
HERE = Path(__file__)
MNIST = DATASETS / "mnist"


def run_instrumented_worker(spec: WorkerSpec, channel: socket.socket) -> int:
    """Run a worker that measures the CPU time of its metrics and checkpoints. Return its exit code."""
    from engine.strategies import stopwatch
    from engine.training import metric_buffer, report, trainer
    from engine.training.callbacks.step_metrics import StepReport
    from engine.training.callbacks.step_profile import StepProfile
    from engine.training.checkpointing import checkpointer
    from engine.training.worker import run

    spent = dict.fromkeys(("telling", "channel", "checkpoints"), 0.0)
    counting = False

    def time_method(owner: type, name: str, consumer: str) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal counting
            if counting:  # nested calls are counted once
                return function(*arguments, **named)
            counting, start = True, time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                counting = False
                spent[consumer] += time.thread_time() - start

        replace(owner, **{name: call})

    time_method(trainer.Trainer, "_emit", "telling")
    for callback in (StepReport, StepProfile):
        time_method(callback, "on_step_end", "telling")
    for name in ("add", "take"):
        time_method(metric_buffer.MetricBuffer, name, "telling")
    for name in ("save", "wait"):
        time_method(checkpointer.Checkpointer, name, "checkpoints")
    call_before(report.Reporter, "close", lambda: add_threads(spent, "channel", ("report", "commands")))
    call_before(checkpointer.Checkpointer, "__exit__", lambda: add_threads(spent, "checkpoints", ("checkpoint_0",)))
    marks = 0
    mark = stopwatch.Stopwatch.mark

    def counted_mark(watch: stopwatch.Stopwatch, consumer: Any) -> None:
        nonlocal marks
        marks += 1
        mark(watch, consumer)

    def add_marks() -> None:
        watch = stopwatch.Stopwatch()
        watch.start()
        spent["telling"] += marks * min(timeit.repeat(lambda: mark(watch, "other"), number=10_000)) / 10_000

    replace(stopwatch.Stopwatch, mark=counted_mark)
    call_before(report.Reporter, "close", add_marks)
    return run_and_measure(spec, channel, run, spent)


def call_before(owner: type, name: str, first: Callable[[], None]) -> None:
    """Make each call of the method `name` of class `owner` call `first` beforehand."""
    function = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        first()
        return function(*arguments)

    replace(owner, **{name: call})


def replace(owner: type, **methods: Callable[..., Any]) -> None:
    for name, method in methods.items():
        getattr(owner, name)  # fails if the method has been renamed
        setattr(owner, name, method)


def add_threads(spent: dict[str, float], consumer: str, names: tuple[str, ...]) -> None:
    for thread in threading.enumerate():
        if thread.name in names and thread.ident is not None:
            spent[consumer] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def run_silent_worker(spec: WorkerSpec, channel: socket.socket) -> int:
    """Run a worker that saves no checkpoints and reports only the first and last step of each epoch. Return its exit code."""
    from engine.strategies import stopwatch
    from engine.training.callbacks import step_metrics
    from engine.training.checkpointing import checkpointer
    from engine.training.worker import run

    step_metrics.REPORT_S = float("inf")
    replace(checkpointer.Checkpointer, save=lambda *_, **__: None)
    replace(stopwatch.Stopwatch, resume=lambda _: None)
    return run_and_measure(spec, channel, run, {})


def run_and_measure(spec: WorkerSpec, channel: socket.socket, run: Callable[..., int], spent: dict[str, float]) -> int:
    start = time.process_time()
    code = run(spec, channel)
    result = {"worker": time.process_time() - start, **spent}
    Path(spec.run_folder, "spent.json").write_text(json.dumps(result))
    return code


def supervise(folder: str, worker: str) -> int:
    """Run a supervisor in this process, and return its exit code.

    Its workers run the function `worker` of this module. The CPU times of its loop and of its device sampler are added
    to spent.json in the run folder.
    """
    run = RunFolder(folder)
    job = run.job()
    assert job is not None
    imports.import_all(imports.BASIC)
    samplers: list[float] = []
    take, close = Sampler.add, Sampler.close

    def used(sampler: Sampler) -> None:
        if sampler._child is not None:
            times = psutil.Process(sampler._child.process.pid).cpu_times()
            samplers.append(times.user + times.system)

    def taken(sampler: Sampler, snapshot: Any) -> None:
        if not samplers:
            used(sampler)
        take(sampler, snapshot)

    def closed(sampler: Sampler) -> None:
        if samplers:
            used(sampler)
        close(sampler)

    replace(Sampler, add=taken, close=closed)
    start = time.process_time()
    code = Supervisor(run, job, worker=f"streaming_cost:{worker}", modules=()).run_to_end()
    spent = json.loads((run.path / "spent.json").read_text())
    spent |= {"supervisor": time.process_time() - start, "sampler": samplers[-1] - samplers[0] if samplers else 0.0}
    (run.path / "spent.json").write_text(json.dumps(spent))
    return code


def measure(job: Job, worker: str, *, reader: bool) -> dict[str, float]:
    """Run `job` once. Return the CPU seconds of the supervisor, the sampler, the worker, and parts of the worker.

    The parts are "telling" (metrics), "channel" (the channel threads) and "checkpoints". `worker` is the name of the
    worker function in this module. `run_silent_worker` measures no parts. If `reader`, a client reads the run's events.
    """
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
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--dataset", type=Path, default=MNIST if MNIST.exists() else paths.sample_dataset())
    parser.add_argument("--supervise", metavar="RUN_FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--worker", default="run_instrumented_worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.supervise:
        return supervise(options.supervise, options.worker)
    job = Job.from_fields(dataset=str(options.dataset), model="mnist_cnn", batch_size=64, epochs=options.epochs)
    print(f"{describe_environment()}; {job.model.name}, batch {job.training.batch_size}, {job.training.epochs} epochs")
    with use_empty_home():
        rounds = [
            (
                measure(job, "run_instrumented_worker", reader=False),
                measure(job, "run_instrumented_worker", reader=True),
                measure(job, "run_silent_worker", reader=False),
            )
            for _ in range(options.pairs)
        ]
    worst = 0.0
    for place, name in ((0, "no reader"), (1, "one reader")):
        parts = {
            consumer: statistics.median(measured[place][consumer] / measured[place]["worker"] for measured in rounds)
            for consumer in ("telling", "channel", "checkpoints", "supervisor", "sampler")
        }
        total = sum(parts.values())
        worst = max(worst, total)
        text = ", ".join(f"{consumer} {share:.3%}" for consumer, share in parts.items())
        print(f"{name:11} {total:.3%} of the worker's processor time ({text})")
    against = [measured[1]["worker"] / measured[2]["worker"] - 1 for measured in rounds]
    print(
        f"check       {statistics.median(against):+.2%} against nothing told or saved ({min(against):+.2%} to {max(against):+.2%})"
    )
    print(f"aim {AIM_SHARE:.1%}: {'met' if worst <= AIM_SHARE else 'missed'}")
    return 0 if worst <= AIM_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
