"""Cost of augmentation: training speed with augmented batches, compared with steps on a batch that is on the device.

    python tests/benchmarks/augmentation_speed.py [--strength medium] [--turns N] [--steps N] [--device cpu] [--cpu-time]

For each model, two variants take short turns in one process, with the same model and optimizer: steps on one batch, and
the same number of steps on batches from the loader, whose images are decoded in advance. The result is the median of
the ratios of all turns. The exit code is 1 if it is below 0.97. With `--cpu-time`, the CPU time of the process with one
torch thread is measured instead, which is useful on busy machines.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.augmentation import describe, transforms
from engine.contract.job import Job
from engine.data.datasets.open_splits import open_splits
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.system import linux
from engine.tasks.registry import TASKS
from tests.benchmarks.frame import DATASETS, describe_environment, make_parser

MODELS = (("resnet18", 128), ("timm:tf_efficientnet_lite0", 160))
AIM = 0.97
WARM = 2


def batches(loader: BatchLoader) -> Iterator[tuple[Tensor, Tensor]]:
    for epoch in itertools.count(1):
        for batch in loader.epoch(epoch):
            yield batch.inputs, batch.targets


def measure(chosen: argparse.Namespace, name: str, size: int) -> float:
    device = torch.device(chosen.device)
    clock = time.process_time if chosen.cpu_time else time.perf_counter
    task = TASKS["classification"]
    job = Job.from_fields(model=name, image_size=size, augmentation=chosen.strength, epochs=100_000)
    splits = open_splits(str(chosen.dataset), val_fraction=0.2, seed=0)
    mean, std = task.get_normalization(job, splits.channels)
    model = task.build_model(job, len(splits.classes), splits.channels).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    loader = BatchLoader(
        splits.train,
        GlobalBatchSampler(len(splits.train), chosen.batch, 0, 1, RandomStreams(0), shuffle=True),
        size=size,
        channels=splits.channels,
        augmentation=job.augmentation.name,
        transforms=transforms(job),
        epochs=job.training.epochs,
        mean=mean,
        std=std,
        threads=2,
        device=device,
        on_unreadable=print,
        memory_format=torch.channels_last,
        cache="memory",
    )

    def spend(source: Iterator[tuple[Tensor, Tensor]], steps: int) -> float:
        start = clock()
        for inputs, targets in itertools.islice(source, steps):
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return clock() - start

    try:
        fed = batches(loader)
        repeated = itertools.repeat(next(fed))
        for _ in loader.epoch(1):  # decodes all images
            pass
        fed = batches(loader)
        for source in (repeated, fed):
            spend(source, WARM)
        ratios, rates = [], []
        for number in range(chosen.turns):
            order = (("pure", repeated), ("fed", fed))
            spent = {side: spend(source, chosen.steps) for side, source in (order[::-1] if number % 2 else order)}
            ratios.append(spent["pure"] / spent["fed"])
            rates.append(chosen.steps * chosen.batch / spent["fed"])
    finally:
        loader.close()
    low, *_, high = statistics.quantiles(ratios, n=20)
    ratio = statistics.median(ratios)
    print(
        f"{name} at {size} px, {chosen.strength} ({describe(job)}): {statistics.median(rates):.1f} images/s, {ratio:.3f} of pure "
        f"({low:.3f} to {high:.3f}; aim {AIM}: {'met' if ratio >= AIM else 'MISSED'})",
        flush=True,
    )
    return ratio


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--strength", default="medium")
    parser.add_argument("--turns", type=int, default=21)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--dataset", type=Path, default=DATASETS / "hymenoptera")
    chosen = parser.parse_args()
    linux.keep_freed_memory()
    if chosen.cpu_time:
        torch.set_num_threads(1)
    print(describe_environment(), flush=True)
    return int(min([measure(chosen, name, size) for name, size in MODELS]) < AIM)


if __name__ == "__main__":
    sys.exit(main())
