"""Training on a thousand to a million files: `python tests/benchmarks/many_files.py [--files N ...]`.

The folders contain small JPEGs in a hundred classes, which are hard links to a few files. On each folder, mnist_cnn is
trained for `--seconds` on the CPU, with a batch of 64 images of 28 px and without a cache. The output shows the images
per second after the first second, the time to the first step, and the peak memory of the worker. The exit code is 1 if
the speed is below 0.9 of that for the smallest folder, or if an additional file takes more than 64 bytes, the length of
its path.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from engine.contract.events import StepMetrics
from engine.contract.job import Job
from tests.benchmarks.folder_scan import make
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home
from tests.support.worker_group import Forker, WorkerGroup

AIM_RATE, AIM_BYTES = 0.9, 64
WARM_S = 1.0


@dataclass(frozen=True)
class Cost:
    """Speed in images per second, seconds until the first step, and the worker's peak memory in bytes."""

    rate: float
    first_step_s: float
    memory: int


def train(forker: Forker, data: Path, folder: Path, seconds: float) -> Cost:
    job = Job.from_fields(
        dataset=str(data), model="mnist_cnn", image_size=28, batch_size=64, epochs=100_000, picture_cache="off",
        checkpoint_minutes=0,
    )  # fmt: skip
    start = time.monotonic()
    group = WorkerGroup(forker, job, folder)
    times: list[tuple[float, int]] = []

    def enough(_rank: int, message: Any) -> bool:
        if isinstance(message, StepMetrics):
            times.append((time.monotonic(), message.step))
        return bool(times) and times[-1][0] - times[0][0] >= seconds

    try:
        group.read(enough, 600)
        (worker,) = psutil.Process(forker.pid).children()
        status = Path(f"/proc/{worker.pid}/status").read_text()
    finally:
        group.close()
    first, last = next(report for report in times if report[0] - times[0][0] >= WARM_S), times[-1]
    rate = (last[1] - first[1]) * job.training.batch_size / (last[0] - first[0])
    peak = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))
    return Cost(rate, times[0][0] - start, peak)


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--seconds", type=float, default=15.0)
    chosen = parser.parse_args()
    print(f"{describe_environment()}; {chosen.seconds:g} s each")
    print(f"{'files':>10} {'images/s':>11} {'first step':>11} {'MiB':>7} {'bytes/file':>11}")
    met = True
    baseline: tuple[int, Cost] | None = None
    with closing(Forker()) as forker:
        for files in sorted(chosen.files):
            with use_empty_home() as folder:
                (folder / "data").mkdir()
                make(folder / "data", files, separate=False)
                train(forker, folder / "data", folder / "warm", 1.5)  # fills the system's file cache
                cost = train(forker, folder / "data", folder / "run", chosen.seconds)
            few, little = baseline = baseline or (files, cost)
            each = (cost.memory - little.memory) / (files - few) if files > few else 0.0
            print(
                f"{files:10,} {cost.rate:11,.0f} {cost.first_step_s:9.2f} s {cost.memory / 2**20:7,.0f} {each:11.0f}",
                flush=True,
            )
            met &= cost.rate >= AIM_RATE * little.rate
            met &= files < 100_000 or each <= AIM_BYTES
    print(f"aims ({AIM_RATE} of the smallest folder's speed, {AIM_BYTES} bytes per file): {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
