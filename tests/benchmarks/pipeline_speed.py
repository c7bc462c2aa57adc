"""What a pipeline gains over the same cut without one: `python tests/benchmarks/pipeline_speed.py`.

Two CPU workers of one thread each. In every round the sides take turns, each timed from its third step on, within its
first epoch: one single-device run alone; two such runs side by side, which shows what the machine's second core adds;
model parallel, where one stage computes at a time; and a pipeline under each schedule, with the same cut (ZBV, which has
four stages, with one of its own). All sides go through each batch in the same 8 microbatches, since a layer takes longer
for eight small batches than for a large one. Prints, by medians over the rounds, each schedule's speed over model
parallel, what its theory and the side-by-side figure allow (the share of time that its order leaves busy, times side by
side over alone), the ratio of the two, and the measured bubble against the theory's. Aims: 0.9 of what is allowed; a
bubble within five points of theory for GPipe and 1F1B; ZB1P's and ZBV's below 1F1B's.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/engine/training")]

from worker_group import Forker, WorkerGroup  # noqa: E402

from engine.contract.events import Planned, ScheduleTraced, StepMetrics  # noqa: E402
from engine.contract.job import Job  # noqa: E402

SCHEDULES = ("gpipe", "1f1b", "zb1p", "zbv")
MICROBATCHES, WARM = 8, 2
AIM, BUBBLE_AIM = 0.9, 0.05


def make_pictures(folder: Path, count: int, size: int) -> Path:
    """Pictures that cost nothing to decode."""
    random = np.random.default_rng(0)
    for number in range(count):
        path = folder / ("train" if number < count - 8 else "val") / str(number % 2) / f"{number}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (size, size, 3), dtype=np.uint8)).save(path)
    return folder


class Run:
    """One run of `job`, timed over `steps` steps after the first few and then ended."""

    def __init__(self, forker: Forker, job: Job, folder: Path, steps: int) -> None:
        group = WorkerGroup(forker, job, folder, every_step=True)
        times: dict[int, float] = {}

        def reached(_rank: int, message: Any) -> bool:
            if isinstance(message, StepMetrics):
                times[message.step] = time.perf_counter()
            return WARM + steps in times

        try:
            group.read(reached, 600)
        finally:
            group.close()
        if WARM + steps not in times:
            raise SystemExit(group.logs() or str(group.messages))
        self.rate = steps * job.batch_size / (times[WARM + steps] - times[WARM])
        self.traced: list[ScheduleTraced] = [event for event in group.of(ScheduleTraced) if event.step > WARM]
        self.cuts: tuple[str, ...] = tuple(plan.cut.cuts for plan in group.of(Planned) if plan.cut)[-1:]
        self.cuts = self.cuts[0] if self.cuts else ()


def side_by_side(forkers: list[Forker], job: Job, folder: Path, steps: int) -> float:
    """The sum of the rates of two independent runs at the same time."""
    rates: list[float] = []
    threads = [
        threading.Thread(target=lambda n=number: rates.append(Run(forkers[n], job, folder / str(n), steps).rate))
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--schedules", nargs="*", default=SCHEDULES)
    chosen = parser.parse_args()
    rates: dict[str, list[float]] = {}
    traced: dict[str, list[ScheduleTraced]] = {name: [] for name in chosen.schedules}
    forkers = [Forker(), Forker()]
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            count = (WARM + chosen.steps + 1) * chosen.batch_size + 8
            data = make_pictures(folder / "data", count, chosen.image_size)
            fields: dict[str, Any] = {
                "dataset": str(data),
                "model": chosen.model,
                "image_size": chosen.image_size,
                "batch_size": chosen.batch_size,
                "epochs": 1000,
                "loader_workers": 1,
            }
            pair: dict[str, Any] = fields | {"devices": ("cpu", "cpu")}
            cuts: dict[str, tuple[str, ...]] = {}
            for number in range(chosen.rounds):
                place = folder / str(number)
                single = Job(**fields, accumulation=MICROBATCHES)
                rates.setdefault("alone", []).append(Run(forkers[0], single, place / "alone", chosen.steps).rate)
                beside = side_by_side(forkers, single, place / "side", chosen.steps)
                rates.setdefault("side by side", []).append(beside)
                for schedule in chosen.schedules:
                    kind = "four stages" if schedule == "zbv" else "two stages"
                    job = Job(
                        **pair, strategy="pipeline", pipeline_schedule=schedule, microbatches=MICROBATCHES,
                        cuts=cuts.get(kind, ()),
                    )  # fmt: skip
                    run = Run(forkers[0], job, place / schedule, chosen.steps)
                    cuts.setdefault(kind, run.cuts)
                    rates.setdefault(schedule, []).append(run.rate)
                    traced[schedule] += run.traced
                alike = Job(
                    **pair,
                    strategy="model_parallel",
                    accumulation=MICROBATCHES,
                    cuts=cuts.get("two stages", ()),
                )
                rates.setdefault("model parallel", []).append(
                    Run(forkers[0], alike, place / "model_parallel", chosen.steps).rate
                )
    finally:
        for forker in forkers:
            forker.close()
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    )
    print(
        f"{chosen.model}, {chosen.image_size} px, batch {chosen.batch_size}, {MICROBATCHES} microbatches, two workers "
        f"of one thread, {chosen.rounds} rounds of {chosen.steps} steps; cuts: {cuts}"
    )
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, values in rates.items():
        print(f"{name}: {medians[name]:.1f} pictures/s ({', '.join(f'{value:.1f}' for value in values)})")
    second = medians["side by side"] / medians["alone"]
    print(f"side by side over alone: {second:.3f}")
    met = True
    bubbles: dict[str, float] = {}
    for schedule, events in traced.items():
        theory = events[0].theory
        bubbles[schedule] = statistics.median(event.bubble for event in events)
        gained, allowed = medians[schedule] / medians["model parallel"], (1 - theory) * second
        print(
            f"{schedule}: {gained:.3f} of model parallel, allowed {allowed:.3f}, ratio {gained / allowed:.3f} (aim {AIM}); "
            f"bubble {bubbles[schedule]:.1%}, theory {theory:.1%}, of {len(events)} steps"
        )
        met &= gained / allowed >= AIM
        met &= schedule not in ("gpipe", "1f1b") or abs(bubbles[schedule] - theory) <= BUBBLE_AIM
        met &= schedule not in ("zb1p", "zbv") or "1f1b" not in bubbles or bubbles[schedule] < bubbles["1f1b"]
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
