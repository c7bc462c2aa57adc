"""Accuracy against the tutorials: `python tests/benchmarks/three_seeds.py [--only NAME]`.

MNIST with mnist_cnn for 3 epochs, and hymenoptera with resnet18 at 64 px from scratch for 10 epochs, with three seeds each:
the tutorials' loop (`tests/support/tutorials.py`) with the same optimizer and cosine schedule against a run with the job's
defaults. Both report the validation accuracy after the last epoch. The exit code is 1 if the means differ by more than
two standard errors, from the spread over the seeds and the number of validation images.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.contract.events import Validation
from engine.contract.job import Job
from engine.supervisor.environment import usable_cores
from tests.support import sides, tutorials
from tests.support.sides import Setting, apart
from tests.support.timed_runs import where
from tests.support.worker_group import Forker, WorkerGroup

DATASETS = Path(__file__).resolve().parents[3] / "shared/datasets"
STANDARD_ERRORS = 2.0


def trained(setting: Setting, epochs: int, seed: int) -> float:
    """Return the final accuracy of the tutorials' loop."""
    torch.set_num_threads(usable_cores())
    if setting.model == "mnist_cnn":
        train, val = (tutorials.mnist_loader(setting.data, setting.batch, train=train) for train in (True, False))
    else:
        train, val = (tutorials.folder_loader(setting, 0, split=split) for split in ("train", "val"))
    model = sides.plain_model(setting, seed)
    optimizer, criterion = tutorials.sgd(model), nn.CrossEntropyLoss()
    scheduler = CosineAnnealingLR(optimizer, epochs * len(train))
    for _ in range(epochs):
        for inputs, labels in train:
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(inputs).argmax(1) == labels).sum()) for inputs, labels in val)
    return right / len(val.dataset)  # type: ignore[arg-type]


def ours(forker: Forker, job: Job, folder: Path) -> Validation:
    """Return the last validation of a run of `job`."""
    group = WorkerGroup(forker, job, folder, threads=usable_cores())
    if any(group.finish(3600)):
        raise SystemExit(group.logs() or str(group.messages[-3:]))
    last: Validation = group.of(Validation)[-1]
    return last


def compare(name: str, job: Job, setting: Setting, *, forker: Forker, folder: Path, seeds: int) -> bool:
    """Print both sides' accuracies, and return True if the means agree within noise."""
    theirs: list[float] = []
    own: list[float] = []
    images = 0
    for seed in range(seeds):
        validation = ours(forker, job.with_fields(seed=seed), folder / f"{name}-{seed}")
        images = validation.images
        own.append(validation.measures["top1"])
        theirs.append(apart(trained, setting, job.training.epochs, seed))
        print(f"  seed {seed}: ours {own[-1]:.2%}, theirs {theirs[-1]:.2%}", flush=True)
    mean_own, mean_theirs = statistics.mean(own), statistics.mean(theirs)
    # Both are measured on the same images, each of which is right or wrong by a chance of about the mean.
    of_images = sum(mean * (1 - mean) / images for mean in (mean_own, mean_theirs))
    of_seeds = sum(statistics.variance(values) / seeds for values in (own, theirs)) if seeds > 1 else 0.0
    noise = STANDARD_ERRORS * math.sqrt(of_seeds + of_images / seeds)
    within = abs(mean_own - mean_theirs) <= noise
    told = f"ours {mean_own:.2%}, theirs {mean_theirs:.2%}, noise {noise:.2%}"
    print(f"{name}, mean of {seeds} seeds: {told}: {'within noise' if within else 'DIFFERENT'}", flush=True)
    return within


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=Path, default=DATASETS)
    parser.add_argument("--only", choices=("mnist", "hymenoptera"))
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    print(where())
    met = True
    with contextlib.ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {"FOOTPLATE_CACHE": str(folder / "cache"), "FOOTPLATE_HOME": str(folder / "home")}
        forker = Forker()
        ending.callback(forker.close)
        if chosen.only != "hymenoptera":
            setting = Setting(
                data=tutorials.unpack_mnist(chosen.datasets / "mnist", folder), model="mnist_cnn", size=28, batch=64, classes=10, channels=1, images=60_000,
                seconds=0.0,
            )  # fmt: skip
            job = Job.from_fields(dataset=str(chosen.datasets / "mnist"), model="mnist_cnn", batch_size=64, epochs=3)
            met &= compare("mnist", job, setting, forker=forker, folder=folder, seeds=chosen.seeds)
        if chosen.only != "mnist":
            data = chosen.datasets / "hymenoptera"
            setting = Setting(data=str(data), model="resnet18", size=64, batch=32, classes=2, images=244, seconds=0.0)
            job = Job.from_fields(dataset=str(data), model="resnet18", image_size=64, epochs=10)
            met &= compare("hymenoptera", job, setting, forker=forker, folder=folder, seeds=chosen.seeds)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
