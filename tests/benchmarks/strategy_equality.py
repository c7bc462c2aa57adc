"""Difference of DDP and the pipeline from a single device: `python tests/benchmarks/strategy_equality.py`.

Trains `mnist_cnn` (no BatchNorm, no dropout) in fp32 on MNIST with the same seed and global batch; prints the largest relative
difference in the first 50 training losses.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.contract.events import StepMetrics
from engine.contract.job import Job
from tests.support.worker_group import Forker, WorkerGroup

STEPS = 50
SETTINGS: dict[str, dict[str, object]] = {
    "single on cpu": {"strategy": "single", "devices": ("cpu",)},
    "ddp on cpu,cpu": {"strategy": "ddp", "devices": ("cpu", "cpu")},
    "pipeline (GPipe) on cpu,cpu": {"strategy": "pipeline", "devices": ("cpu", "cpu")},
    "pipeline (1F1B) on cpu,cpu": {
        "strategy": "pipeline",
        "devices": ("cpu", "cpu"),
        "pipeline_schedule": "1f1b",
    },
}


def first_losses(forker: Forker, job: Job) -> list[float]:
    """Return the losses of the first steps of a run, and end it."""
    with tempfile.TemporaryDirectory() as folder:
        group = WorkerGroup(forker, job, Path(folder), every_step=True)
        try:
            group.read(lambda _, message: isinstance(message, StepMetrics) and message.step >= STEPS, 600)
        finally:
            group.close()
        if len(group.losses) < STEPS:
            raise SystemExit(group.logs() or str(group.messages))
        return group.losses[:STEPS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "dataset", nargs="?", default=str(Path(__file__).resolve().parents[3] / "shared/datasets/mnist")
    )
    parser.add_argument("--model", default="mnist_cnn")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    chosen = parser.parse_args()
    fields = {"model": chosen.model, "batch_size": chosen.batch_size, "learning_rate": chosen.learning_rate}
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}; {fields}")
    forker = Forker()
    try:
        runs = {
            name: first_losses(forker, Job.from_fields(dataset=chosen.dataset, epochs=5, **fields, **setting))
            for name, setting in SETTINGS.items()
        }
    finally:
        forker.close()
    reference = runs.pop("single on cpu")
    print(f"single on cpu: loss {reference[0]:.6f} at step 1, {reference[-1]:.6f} at step {STEPS}")
    for name, losses in runs.items():
        worst = max(abs(ours - theirs) / abs(theirs) for ours, theirs in zip(losses, reference, strict=True))
        print(f"{name}: largest relative difference of {STEPS} losses {worst:.2e}")


if __name__ == "__main__":
    main()
