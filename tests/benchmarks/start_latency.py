"""Time from pressing Train to the first loss on the sample dataset, compared with importing PyTorch.

    python tests/benchmarks/start_latency.py [--times N] [--strategy single|ddp]

Three variants take turns N times: a new interpreter that imports torch and torchvision; a start of a run in a new
interpreter ("cold"); and a start from a preloader that has imported them. A cold start may take 1 s more than the
import, a preloaded one 1 s in total. The exit code is 1 if a median exceeds its limit. A first turn fills the disk
cache and isn't counted.
"""

from __future__ import annotations

import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from engine.contract.events import RunFinished, StepMetrics
from engine.contract.job import Job
from engine.contract.protocol import Stop
from engine.runs.connection import NotRunning, RunConnection
from engine.runs.folder import RunFolder, create_run
from engine.runs.launch import start_supervisor
from engine.system import paths
from tests.benchmarks.frame import describe_environment, make_parser, start_preloader, use_empty_home

AIM_S = 1.0


def measure_imports_s() -> float:
    """Measure the seconds that a new process takes to start, import torch and torchvision, and exit."""
    start = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch, torchvision"], check=True)
    return time.monotonic() - start


def measure_first_loss_s(job: Job, start: Callable[[RunFolder], object]) -> float:
    """Create a run, call `start` with its folder, and measure the seconds until its first loss. Then stop the run."""
    requested_at = time.monotonic()
    run = create_run(job)
    start(run)
    connection = connect(run)
    seconds = 0.0
    with connection:
        while not connection.closed:
            select.select([connection], [], [], 60.0)
            for message in connection.receive():
                if isinstance(message, StepMetrics) and not seconds:
                    seconds = time.monotonic() - requested_at
                    connection.send(Stop())
                elif isinstance(message, RunFinished) and message.outcome == "failed":
                    sys.exit(message.cause)
    return seconds


def connect(run: RunFolder) -> RunConnection:
    while True:
        try:
            return RunConnection(run)
        except NotRunning:
            if run.state() not in ("starting", "running"):
                sys.exit(f"the run did not start; see {run.path}")
            time.sleep(0.005)


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--strategy", choices=("single", "ddp"), default="single")
    parser.add_argument("--model", default="resnet18")
    options = parser.parse_args()
    devices = ("cpu",) if options.strategy == "single" else ("cpu", "cpu")
    job = Job.from_fields(
        dataset=str(paths.sample_dataset()),
        model=options.model,
        image_size=64,
        strategy=options.strategy,
        devices=devices,
    )
    print(describe_environment())
    print(
        f"{job.model.name}, {job.data.image_size} px, batch {job.training.batch_size}, {job.resolved_strategy} on {','.join(devices)}"
    )
    with use_empty_home(), start_preloader() as starter:
        turns = [
            (
                measure_imports_s(),
                measure_first_loss_s(job, start_supervisor),
                measure_first_loss_s(job, starter.start_run),
            )
            for _ in range(options.times + 1)
        ][1:]
    imported, cold, preloaded = (list(column) for column in zip(*turns, strict=True))
    extra = [a - b for a, b in zip(cold, imported, strict=True)]
    met = True
    for name, seconds, aim in (
        ("imports alone", imported, None),
        ("cold start", cold, None),
        ("cold - imports", extra, AIM_S),
        ("preloaded", preloaded, AIM_S),
    ):
        median = statistics.median(seconds)
        verdict = "" if aim is None else f"  (aim {aim:.1f} s: {'met' if median <= aim else 'missed'})"
        met = met and (aim is None or median <= aim)
        print(f"{name:15} median {median:.2f} s, least {min(seconds):.2f} s, most {max(seconds):.2f} s{verdict}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
