"""Speed of `footplate predict` compared with the model's forward passes.

    python tests/benchmarks/predict_speed.py [--size 128] [--images 512] [--batch-size 16] [--rounds 5]

A resnet18 is trained briefly. In one process and with the same weights, two variants take turns: forward passes over
batches in memory, and the complete work of a `footplate predict` worker on JPEG files of `--size` px (reading,
decoding, forward passes, probabilities, journal). After a warm-up round, the output shows the medians of the ratios of
images per second and of CPU time. The exit code is 1 if the first ratio is below 0.97.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from engine.contract.inference.prediction import PredictRequest
from engine.inference import Run
from engine.inference.prediction.journal import Journal
from engine.inference.prediction.sources import list_sources
from engine.inference.prediction.work import Predictor
from engine.inference.sweep import ALL_SAMPLES
from engine.inference.trained_model import TrainedModel
from tests.benchmarks.frame import describe_environment, make_parser, use_empty_home
from tests.support.timed_runs import make_images
from tests.support.trained_runs import train_small_model
from tests.support.worker_group import Forker

AIM = 0.97


class SilentShard:
    """Replacement for `Shard`, a worker's part of the predictions, that covers all samples and reports no progress."""

    partition, rank = ALL_SAMPLES, 0

    def advance(self, count: int) -> None: ...

    def skip(self, path: str, reason: str) -> None:
        raise AssertionError(f"{path}: {reason}")


class Duration(NamedTuple):
    """Wall-clock time, and CPU time on all cores, in seconds."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Duration:
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: Duration) -> Duration:
        return Duration(self.wall - start.wall, self.cpu - start.cpu)


def time_forward_passes(model: TrainedModel, batches: list[torch.Tensor]) -> Duration:
    """Measure the time for forward passes over batches in memory."""
    start = Duration.now()
    for batch in batches:
        model.outputs(batch)
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return Duration.now().since(start)


def time_predictions(model: TrainedModel, request: PredictRequest, folder: Path, number: int) -> Duration:
    """Measure the time in which a worker predicts the requested images and writes the results.

    `number` is the number of the journal that is written to `folder`.
    """
    sources = list_sources(request.paths, "images", request.out)
    start = Duration.now()
    with Journal(folder, number, 0) as journal:
        todo = np.arange(len(sources.files))
        Predictor(request, model, SilentShard(), journal, sources=sources, remaining=todo).predict_images()
    return Duration.now().since(start)


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    with use_empty_home() as folder:
        fields = {"model": "resnet18", "image_size": options.size, "loader_workers": 2}
        with closing(Forker()) as forker:
            run = train_small_model(forker, folder, "classification", **fields).run
        make_images(folder / "images", options.images, options.size)
        print(describe_environment())
        model = Run(run.path).load("last", options.device)
        request = PredictRequest(
            run=str(run.path), paths=(str(folder / "images"),), out=str(folder / "out"), batch_size=options.batch_size
        )
        size = (options.batch_size, 3, options.size, options.size)
        batches = [torch.randn(size, device=model.device) for _ in range(options.images // options.batch_size)]
        time_forward_passes(model, batches)
        time_predictions(model, request, folder, 0)
        ratios: list[Duration] = []
        for number in range(1, options.rounds + 1):
            bare, complete = time_forward_passes(model, batches), time_predictions(model, request, folder, number)
            ratios.append(Duration(bare.wall / complete.wall, bare.cpu / complete.cpu))
            print(
                f"model alone {options.images / bare.wall:,.1f} images/s, predict {options.images / complete.wall:,.1f} "
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
