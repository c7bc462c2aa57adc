"""How fast `footplate predict` is beside the model alone.

    python tests/benchmarks/predict_speed.py [--size 128] [--images 512] [--batch-size 16] [--rounds 5]

A resnet18 is trained for a moment. Then, in one process and with the same weights, a round of each in turn: the
model's forward passes alone, over batches that are in memory; and all that a worker of `footplate predict` does with
as many JPEG files of `--size` px: read, decode, forward, probabilities, journal. Both have had a round before. Each
round's ratios are of the images per second of the two, and of their processor time, which others' work beside it
changes less; the last line is their medians. Exits with 1 where the first is below 0.97.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch

from engine.contract.inference.prediction import PredictOrder
from engine.inference import Run
from engine.inference.prediction.journal import Journal
from engine.inference.prediction.sources import list_sources
from engine.inference.prediction.work import Predicting
from engine.inference.sweep import ALONE
from engine.inference.trained_model import TrainedModel
from tests.support.timed_runs import make_images, where
from tests.support.trained_runs import train
from tests.support.worker_group import Forker

AIM = 0.97


class Silent:
    """A share of all samples of which nobody is told."""

    part, rank = ALONE, 0

    def progressed(self, count: int) -> None: ...

    def skip(self, path: str, reason: str) -> None:
        raise AssertionError(f"{path}: {reason}")


class Took(NamedTuple):
    """Seconds, of a clock on the wall and of all processors."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Took:
        return cls(time.perf_counter(), time.process_time())

    def since(self, begun: Took) -> Took:
        return Took(self.wall - begun.wall, self.cpu - begun.cpu)


def alone(model: TrainedModel, batches: list[torch.Tensor]) -> Took:
    """What the forward passes take."""
    begun = Took.now()
    for batch in batches:
        model.outputs(batch)
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return Took.now().since(begun)


def predicted(model: TrainedModel, order: PredictOrder, folder: Path, number: int) -> Took:
    """What a worker's share takes, from the first file to the last row."""
    sources = list_sources(order.paths, "images", order.out)
    begun = Took.now()
    with Journal(folder, number, 0) as journal:
        todo = np.arange(len(sources.files))
        Predicting(order, model, Silent(), journal, sources=sources, todo=todo).images()
    return Took.now().since(begun)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        forker = Forker()
        fields = {"model": "resnet18", "image_size": options.size, "loader_workers": 2}
        run = train(forker, folder, "classification", **fields).run
        forker.close()
        make_images(folder / "images", options.images, options.size)
        print(where())
        model = Run(run.path).load("last", options.device)
        order = PredictOrder(
            run=str(run.path), paths=(str(folder / "images"),), out=str(folder / "out"), batch_size=options.batch_size
        )
        size = (options.batch_size, 3, options.size, options.size)
        batches = [torch.randn(size, device=model.device) for _ in range(options.images // options.batch_size)]
        alone(model, batches)
        predicted(model, order, folder, 0)
        ratios: list[Took] = []
        for number in range(1, options.rounds + 1):
            bare, whole = alone(model, batches), predicted(model, order, folder, number)
            ratios.append(Took(bare.wall / whole.wall, bare.cpu / whole.cpu))
            print(
                f"model alone {options.images / bare.wall:,.1f} images/s, predict {options.images / whole.wall:,.1f} "
                f"images/s: {ratios[-1].wall:.3f}, of processor time {ratios[-1].cpu:.3f}",
                flush=True,
            )
    ratio = statistics.median(took.wall for took in ratios)
    print(
        f"{ratio:.3f} of the forward passes' speed, of processor time "
        f"{statistics.median(took.cpu for took in ratios):.3f} (resnet18 at {options.size} px, {options.images} JPEGs, "
        f"batches of {options.batch_size}, {options.device})"
    )
    return int(ratio < AIM)


if __name__ == "__main__":
    sys.exit(main())
