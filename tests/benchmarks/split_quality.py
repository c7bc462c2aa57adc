"""Comparison of automatic split points with the best ones: `python tests/benchmarks/split_quality.py [MODEL …]`.

Two single-threaded CPU workers train a pipeline of two stages on random images, with 8 microbatches. For each model,
the automatic split point is determined as in a run. Then every possible one is tried in the same two processes. The
fastest few and the automatic one are measured again in turns, and their medians are compared. The output has a line per
model and the lowest ratio. The exit code is 1 if a ratio is too low.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import msgspec
import torch
from torch import nn

from engine.contract.job import Job
from engine.contract.model_split import ModelSplit
from engine.data.loading.base_loader import Batch
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import ResolvedJob
from engine.strategies.pipeline import Pipeline
from engine.strategies.pipelining.model_split import Traces
from engine.tasks.registry import TASKS
from tests.benchmarks.frame import describe_environment, make_parser
from tests.support.dataset_infos import make_dataset_info
from tests.support.specs import make_worker_spec

AIM = 0.95
MICROBATCHES = 8
CLASSES, CHANNELS = 10, 3
FINALISTS = 3
ROUNDS = 4
"""Number of times that the fastest split points are measured again."""


class Setting(NamedTuple):
    """Model, side length of its images in pixels, and number of images per microbatch."""

    model: str
    image_size: int
    images: int


SETTINGS = (
    Setting("resnet18", 64, 4),
    Setting("mobilenet_v2", 64, 4),
    Setting("efficientnet_b0", 64, 2),
    Setting("convnext_tiny", 64, 2),
    Setting("densenet121", 32, 2),
)


class SplitComparison(NamedTuple):
    """Comparison of the automatic and the best split point of a model. Rates are in images per second.

    `places` is the number of possible split points. `seconds` is the duration of the comparison.
    """

    places: int
    automatic: str
    best: str
    automatic_rate: float
    best_rate: float
    slowest_rate: float
    seconds: float


class FixedSplitPipeline(Pipeline):
    """Pipeline strategy that uses the model split `given`. If `given` is None, it chooses the split automatically."""

    given: ModelSplit | None = None

    def _find_split(self, model: nn.Module, traces: Traces) -> ModelSplit:
        return self.given or super()._find_split(model, traces)


class SplitTrial:
    """Pipeline that measures the speed of a model with different split points.

    Each of the two workers has one, for its stage. Both call the same methods in the same order.
    """

    def __init__(self, setting: Setting, schedule: str, rank: int, rendezvous: str, steps: int) -> None:
        self.job = Job.from_fields(
            strategy="pipeline",
            devices=("cpu", "cpu"),
            model=setting.model,
            image_size=setting.image_size,
            batch_size=setting.images * MICROBATCHES,
            microbatches=MICROBATCHES,
            pipeline_schedule=schedule,
        )
        self.steps = steps
        self.shape = (CHANNELS, setting.image_size, setting.image_size)
        self.task = TASKS[self.job.task]
        self.plain = self.task.build_model(self.job, CLASSES, CHANNELS)
        self.strategy = FixedSplitPipeline(
            make_worker_spec(self.job, rank=rank, rendezvous=rendezvous)
        )  # fmt: skip
        self.strategy.setup()

    def find_automatic_split(self) -> ModelSplit:
        self.strategy.wrap(
            copy.deepcopy(self.plain),
            self.task.create_objective(self.job, make_dataset_info(CLASSES)),
            self.shape,
            ResolvedJob(self.job),
        )
        assert self.strategy.model_split is not None
        return self.strategy.model_split

    def measure_rate(self, split: ModelSplit, place: str) -> float:
        """Train several steps with the split point `place`, and return the images per second of the fastest step.

        The first step isn't counted.
        """
        strategy = self.strategy
        strategy.given = msgspec.structs.replace(split, split_points=(place,))
        strategy.wrap(
            copy.deepcopy(self.plain),
            self.task.create_objective(self.job, make_dataset_info(CLASSES)),
            self.shape,
            ResolvedJob(self.job),
        )
        optimizer_step = OptimizerStep(
            strategy.parameters(), self.job, 1000, strategy.device, sum_over_shards=strategy.sum_over_shards
        )
        seconds = []
        for _ in range(1 + self.steps):
            strategy.collectives.all_reduce_max((0,))  # both workers start at the same time
            start = time.perf_counter()
            strategy.step(self._batch(), optimizer_step)
            strategy.collectives.all_reduce_max((0,))
            seconds.append(time.perf_counter() - start)
        return self.job.training.batch_size / min(seconds[1:])

    def _batch(self) -> Batch | None:
        if not self.strategy.loads_data:
            return None
        size = self.job.training.batch_size
        return Batch(torch.randn(size, *self.shape), torch.zeros(size, dtype=torch.int64), size, 0.0)

    def run(self) -> SplitComparison:
        start = time.perf_counter()
        split = self.find_automatic_split()
        (chosen,) = split.split_points
        rates = {segment.split_point: self.measure_rate(split, segment.split_point) for segment in split.segments[:-1]}
        finalists = [place for place in self._rank_split_points(rates) if place != chosen][:FINALISTS]
        timed: dict[str, list[float]] = {place: [] for place in (chosen, *finalists)}
        for _ in range(ROUNDS):
            for place, found in timed.items():
                found.append(self.measure_rate(split, place))
        medians = {place: statistics.median(found) for place, found in timed.items()}
        best = max(medians, key=medians.__getitem__)
        self.strategy.teardown()
        return SplitComparison(
            len(rates), chosen, best, medians[chosen], medians[best], min(rates.values()), time.perf_counter() - start
        )

    def _rank_split_points(self, rates: dict[str, float]) -> list[str]:
        """Return the split points from fastest to slowest. The slower of the two workers determines each one's rate."""
        slower = self.strategy.collectives.all_reduce_max([round(-1e6 * rate) for rate in rates.values()])
        return [place for _, place in sorted(zip(slower, rates, strict=True))]


def work(rank: int, folder: str, chosen: argparse.Namespace, answers: Connection) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for number, setting in enumerate(list_requested_settings(chosen)):
        found = SplitTrial(setting, chosen.schedule, rank, f"{folder}/{number}", chosen.steps).run()
        if rank == 0:
            answers.send(found)


def list_requested_settings(chosen: argparse.Namespace) -> list[Setting]:
    return [setting for setting in SETTINGS if not chosen.models or setting.model in chosen.models]


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="some of those that are tried by default")
    parser.add_argument("--schedule", default="1f1b", choices=("gpipe", "1f1b"))
    parser.add_argument("--steps", type=int, default=2, help="timed steps at each place (%(default)s)")
    chosen = parser.parse_args()
    print(f"{describe_environment()}; {chosen.schedule}")
    answers, theirs = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    worst = 1.0
    with tempfile.TemporaryDirectory() as folder:
        workers = [context.Process(target=work, args=(rank, folder, chosen, theirs), daemon=True) for rank in range(2)]
        for worker in workers:
            worker.start()
        theirs.close()
        try:
            for setting in list_requested_settings(chosen):
                found = answers.recv()
                ratio = found.automatic_rate / found.best_rate
                worst = min(worst, ratio)
                print(
                    f"{setting.model} at {setting.image_size} px, {setting.images} images a microbatch: automatic "
                    f"{found.automatic} {found.automatic_rate:.1f} images/s; best of {found.places} {found.best} "
                    f"{found.best_rate:.1f}, worst {found.slowest_rate:.1f}; ratio {ratio:.3f} ({found.seconds:.0f} s)",
                    flush=True,
                )
        except EOFError:
            raise SystemExit("A worker has failed; see above.") from None
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
    print(f"the worst ratio: {worst:.3f} (aim: at least {AIM})")
    sys.exit(0 if worst >= AIM else 1)


if __name__ == "__main__":
    main()
