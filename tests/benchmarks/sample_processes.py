"""Samples loaded by processes instead of threads: `python tests/benchmarks/sample_processes.py [--workers N]`.

A custom task computes each sample in Python, or in numpy, which lets other threads run. For both, the output shows the
samples per second that the same loader gets from threads and from processes, and which of these a run would use. The
exit code is 1 if processes are not `AIM` times as fast for Python code on two cores, or if a run would use the slower
ones.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import torch

from engine.contract.job import Job
from engine.data.datasets.samples import SampleSet
from engine.data.loading.sample_loader import SampleLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.tasks.custom.task import load_task
from engine.training.sample_processes import SampleProcesses, should_use_processes
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home
from tests.support.consent import permit_model_file

AIM = 1.4
TASK = """
import numpy as np
import torch
from torch import nn
from engine.tasks.custom.interface import CustomTask, SampleSet

class Computed(SampleSet):
    def __len__(self):
        return 100_000

    def path(self, index):
        return str(index)

    def load(self, index, epoch):
        {load}
        return torch.full((3, 224, 224), float(value)), torch.tensor(index % 2)

class ComputedTask(CustomTask):
    classes = "a", "b"

    def datasets(self):
        return Computed(), Computed()

    def build_model(self, classes, channels):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")
"""
LOADS = {
    "Python": "value = sum(number * number % 7 for number in range(60_000))",
    "numpy": "value = np.sort(np.random.default_rng(index).random(60_000))[0]",
}


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    chosen = parser.parse_args()
    ratios, misses = dict[str, float](), 0
    with use_empty_home() as folder:
        (folder / "data").mkdir()
        print(describe_environment())
        for name, load in LOADS.items():
            job = make_job(folder, name, load)
            splits = load_task(job).open_splits()
            assert isinstance(splits.train, SampleSet)
            with closing(SampleProcesses(job, splits, print)) as processes:
                if not processes.wait(120):
                    raise SystemExit("The server doesn't start.")
                loads = {"threads": None, "processes": partial(processes.load, "train")}
                rates = {way: list[float]() for way in loads}
                for _ in range(chosen.rounds):
                    for way, function in loads.items():
                        sampler = GlobalBatchSampler(len(splits.train), 16, 0, 1, RandomStreams(0))
                        loader = SampleLoader(
                            splits.train, sampler, threads=chosen.workers, device=torch.device("cpu"),
                            on_unreadable=print, load=function,
                        )  # fmt: skip
                        with closing(loader):
                            rates[way].append(measure_rate(loader, chosen.seconds))
            threads, others = (statistics.median(each) for each in rates.values())
            ratios[name], chosen_way = others / threads, "threads"
            if should_use_processes(splits.train, 10**6):
                chosen_way = "processes"
            misses += (chosen_way == "processes") != (others > threads)
            line = (
                f"{name}: {threads:.0f} samples/s with threads, {others:.0f} with processes: {ratios[name]:.2f} times"
            )
            print(f"{line}; a run uses {chosen_way}")
    return int(ratios["Python"] < AIM or misses > 0)


def make_job(folder: Path, name: str, load: str) -> Job:
    file = folder / f"{name}.py"
    file.write_text(TASK.replace("{load}", load))
    return Job.from_fields(
        task="custom",
        dataset=str(folder / "data"),
        model=str(file),
        model_file_sha256=permit_model_file(file),
        batch_size=16,
    )


def measure_rate(loader: SampleLoader, seconds: float) -> float:
    """Measure the samples per second that the loader yields after its first four batches, for `seconds`."""
    batches = loader.epoch(1)
    for _ in range(4):
        next(batches)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        count += len(next(batches).inputs)
    found = count / (time.perf_counter() - started)
    batches.close()  # type: ignore[attr-defined]
    return found


if __name__ == "__main__":
    sys.exit(main())
