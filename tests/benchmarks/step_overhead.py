"""Overhead of Footplate's training step compared with torch's: `python tests/benchmarks/step_overhead.py`.

The steps train resnet18 at 64 px with a batch size of 32, SGD with momentum, fp32 and one thread, without data loading
and logging. After a warm-up, Footplate and plain torch take turns in blocks of steps. The overhead is the ratio of the
median CPU times per step. The check for non-finite losses is measured separately. The exit code is 1 if the overhead
without this check is 1% or more.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Literal

import torch
from torch.nn import functional
from torchvision.models import resnet18

from engine.contract.job import Job
from engine.data.loading.base_loader import Batch
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies import STRATEGIES
from engine.strategies.base import ResolvedJob
from engine.training.oom_retry import ResilientStep
from tests.benchmarks.frame import describe_environment, make_parser
from tests.support.dataset_infos import make_classification_objective
from tests.support.specs import make_worker_spec

AIM = 0.01
SIZE, IMAGES, CLASSES = 64, 32, 10


def make_torch_step(inputs: torch.Tensor, targets: torch.Tensor) -> Callable[[], None]:
    """Return the training step of a plain torch script, with the same optimizer as Footplate's step."""
    model = resnet18(num_classes=CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    return step


def footplates(
    inputs: torch.Tensor, targets: torch.Tensor, on_not_finite: Literal["stop", "skip"] = "stop"
) -> Callable[[], None]:
    job = Job.from_fields(
        model="resnet18", image_size=SIZE, batch_size=IMAGES, schedule="none", on_not_finite=on_not_finite
    )
    spec = make_worker_spec(job)
    strategy = STRATEGIES["single"](spec)
    strategy.setup()
    strategy.wrap(resnet18(num_classes=CLASSES), make_classification_objective(), (3, SIZE, SIZE), ResolvedJob(job))
    optimizer_step = OptimizerStep(strategy.parameters(), job, 1000, strategy.device, strategy.sum_over_shards)
    stepper = ResilientStep(strategy, optimizer_step, print, lambda: False)
    batch = Batch(inputs, targets, IMAGES, 0.0)

    def step() -> None:
        stepper.step(batch, 1)

    return step


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=int, default=60)
    parser.add_argument("--steps", type=int, default=4, help="steps per block")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inputs, targets = torch.randn(IMAGES, 3, SIZE, SIZE), torch.randint(0, CLASSES, (IMAGES,))
    sides = {
        "torch": make_torch_step(inputs, targets),
        "Footplate": footplates(inputs, targets),
        "Footplate, skipping": footplates(inputs, targets, "skip"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for step in sides.values():
        for _ in range(5):
            step()
    for block in range(chosen.blocks):
        turns = list(sides)
        for name in turns[block % len(turns) :] + turns[: block % len(turns)]:
            start = time.process_time()
            for _ in range(chosen.steps):
                sides[name]()
            seconds[name].append((time.process_time() - start) / chosen.steps)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    overhead = medians["Footplate"] / medians["torch"] - 1
    check = medians["Footplate, skipping"] / medians["Footplate"] - 1
    print(f"{describe_environment()}, one thread")
    for name, median in medians.items():
        print(f"{name}: {median * 1000:.2f} ms of processor time per step (median of {chosen.blocks} blocks)")
    print(f"overhead of Footplate's step: {overhead:+.2%} (aim: below {AIM:.0%})")
    print(f"of looking at each step beyond that: {check:+.2%}")
    return 0 if overhead < AIM else 1


if __name__ == "__main__":
    sys.exit(main())
