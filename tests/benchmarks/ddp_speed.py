"""Speed of DDP compared with independent runs and with the tutorial's script: `python tests/benchmarks/ddp_speed.py`.

Two single-threaded CPU workers train resnet18 at 128 px on synthetic JPEGs. Three variants take turns, and the second
epoch of each is timed: Footplate's DDP; "side by side", two independent single-device runs at the same time with half
the batch size; and a script like that in torch's DDP tutorial (ImageFolder, DataLoader with DistributedSampler). The
output shows images per second and the ratios of the medians. DDP should reach 0.95 of "side by side" and 1.0 of the
script.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from engine.contract.job import Job
from tests.benchmarks.frame import describe_environment, make_parser, print_rates, use_empty_home
from tests.support import tutorials
from tests.support.sides import Setting, run_in_process
from tests.support.timed_runs import TimedRun, make_images, run_side_by_side
from tests.support.worker_group import Forker

SIZE, WORKERS = 128, 2
SIDES = ("Footplate's DDP", "side by side", "the tutorial's script")


def measure_tutorial(data: Path, batch: int, warm: int, steps: int) -> float:
    """Return the speed of torch's DDP tutorial in images per second, with one DataLoader worker per rank.

    `batch` is the batch size of both ranks together. The first `warm` steps aren't timed, the next `steps` are.
    """
    setting = Setting(
        data=str(data), model="resnet18", size=SIZE, batch=batch, classes=2, images=steps * batch, seconds=0.0
    )
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        script = partial(tutorials.measure_ddp_rate, world=WORKERS, warm=warm, steps=steps)
        return next(pool.map(lambda rank: run_in_process(script, setting, rank, f"{folder}/store"), range(WORKERS)))


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--batch-size", type=int, default=128, help="of both workers together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="measured per round")
    chosen = parser.parse_args()
    batch, steps = chosen.batch_size, chosen.steps
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    with use_empty_home() as folder, closing(Forker()) as first, closing(Forker()) as second:
        epoch = steps + 2
        warm = epoch + 1
        data = make_images(folder / "data", epoch * batch + 8, 160)
        fields: dict[str, Any] = {
            "dataset": str(data), "model": "resnet18", "image_size": SIZE, "epochs": 1000, "loader_workers": 1,
        }  # fmt: skip
        ddp = Job.from_fields(**fields, batch_size=batch, strategy="ddp", devices=("cpu",) * WORKERS)
        alone = Job.from_fields(**fields, batch_size=batch // WORKERS)
        for number in range(chosen.rounds):
            runs = folder / str(number)
            rates[SIDES[0]].append(TimedRun(first, ddp, runs / "ddp", warm=warm, steps=steps).rate)
            # With half the batch, an epoch has twice as many steps.
            window = {"warm": warm * WORKERS, "steps": steps * WORKERS}
            rates[SIDES[1]].append(run_side_by_side((first, second), alone, runs / "side", **window))
            rates[SIDES[2]].append(measure_tutorial(data, batch, warm, steps))
    print(describe_environment())
    print(
        f"resnet18, {SIZE} px, batch {batch}, {WORKERS} workers of one thread, {chosen.rounds} rounds of {steps} steps"
    )
    medians = print_rates(rates)
    to_parallel_runs, to_tutorial = medians[SIDES[0]] / medians[SIDES[1]], medians[SIDES[0]] / medians[SIDES[2]]
    print(
        f"DDP of side by side: {to_parallel_runs:.3f} (aim 0.95); of the tutorial's script: {to_tutorial:.3f} (aim 1.0)"
    )
    return 0 if to_parallel_runs >= 0.95 and to_tutorial >= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
