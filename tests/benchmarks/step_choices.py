"""Quality and cost of the trials at a run's start: `python tests/benchmarks/step_choices.py`.

For each model the trials decide as in a run of `--steps` steps; then all options are measured longer, in turns, and the choice is
compared with the best. `--device cuda` includes precision and compiling. Aims: 0.95 of the best speed, for at most 4 %
of the run's time; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.contract.events import Chosen
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.strategies.base import ResolvedJob
from engine.strategies.single import SingleDevice
from engine.strategies.speed import Rehearsal
from engine.supervisor.environment import usable_cores
from engine.system import linux
from engine.tasks.registry import TASKS
from engine.training.autotune import FORMATS, TRIAL_FRACTION, Autotuner
from tests.support.dataset_infos import class_of_image
from tests.support.timed_runs import where

AIM = 0.95
CASES = (("mnist_cnn", 28, 1, 64), ("resnet18", 64, 3, 32), ("resnet18", 160, 3, 32), ("convnext_tiny", 64, 3, 32))
"""Model, pixels, channels, batch."""


def strategy_for(job: Job, device: str, threads: int) -> SingleDevice:
    spec = WorkerSpec(
        run_folder="", job=job, rank=0, world_size=1, devices=(device,), rendezvous="", threads=threads
    )  # fmt: skip
    return SingleDevice(spec)


def passes(job: Job, device: str, threads: int, shape: tuple[int, int, int], rounds: int) -> dict[str, float]:
    """Measure the median seconds of a pass in each memory format."""
    seconds: dict[str, list[float]] = {name: [] for name in FORMATS}
    rehearsals = []
    for name, memory_format in FORMATS.items():
        strategy = strategy_for(job, device, threads)
        model = TASKS["classification"].build_model(job, 10, shape[0])
        model.to(strategy.device).to(memory_format=memory_format)
        in_format = job.with_fields(memory_format=name)
        rehearsals.append(Rehearsal(strategy, in_format, model, class_of_image(), shape))
    for _ in range(rounds + 1):
        for rehearsal, taken in zip(rehearsals, seconds.values(), strict=True):
            with rehearsal:
                taken.append(rehearsal.seconds())
    return {way: statistics.median(taken[1:]) for way, taken in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--steps", type=int, default=1000, help="of the run that the trials are for")
    parser.add_argument("--rounds", type=int, default=15, help="in which the ways are measured")
    parser.add_argument("--models", nargs="*", help="of the cases; all if not given")
    chosen = parser.parse_args()
    device = "cpu" if chosen.device == "cpu" else f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    threads = usable_cores()
    print(where())
    linux.keep_freed_memory()
    missed = False
    for name, size, channels, batch in CASES:
        if chosen.models and name not in chosen.models:
            continue
        shape = channels, size, size
        job = Job.from_fields(model=name, image_size=size, batch_size=batch, devices=(device,))
        strategy = strategy_for(job, device, threads)
        strategy.setup()
        told: list[Chosen] = []
        trials = Autotuner(strategy, class_of_image(), shape, steps=chosen.steps, emit=told.append)
        model = TASKS["classification"].build_model(job, 10, channels)
        torch.set_num_threads(threads)
        start = time.perf_counter()
        settled = trials.decide(job, model, {})
        strategy.wrap(model, class_of_image(), shape, ResolvedJob(settled))
        trials.compile()
        cost_s = time.perf_counter() - start
        ways = passes(settled.with_fields(compile="off"), device, threads, shape, chosen.rounds)
        own = ways[settled.precision.memory_format]
        quality, share = min(ways.values()) / own, cost_s / (chosen.steps * own)
        missed |= quality < AIM or share > TRIAL_FRACTION
        print(f"\n{name} at {size} px, batch {batch}:")
        for event in told:
            print(f"  {event.field}: {event.choice}, because {event.why}")
        print("  measured: " + ", ".join(f"{way} {seconds * 1000:.1f} ms" for way, seconds in ways.items()))
        print(f"  speed of the choice: {quality:.3f} of the best (aim: {AIM})")
        print(
            f"  the trials took {cost_s:.2f} s, {share:.1%} of {chosen.steps} such passes (aim: {TRIAL_FRACTION:.0%})"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
