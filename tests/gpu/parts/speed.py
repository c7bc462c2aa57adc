"""Training at 224 px in bf16, from JPEGs on disk, beside bare steps on a batch in memory and the loops that others write."""

from __future__ import annotations

import argparse
import statistics
from functools import partial
from typing import Any

from engine.supervisor.environment import usable_cores
from tests.benchmarks.training_speed import Bench, Comparison
from tests.gpu.proof import Proof, prove
from tests.support.timed_runs import make_pictures
from tests.support.worker_group import Forker

BATCHES = {"resnet18": 512, "resnet50": 256, "vit_b_16": 256, "mnist_cnn": 1024}
IMAGES, DISTINCT, SIDE = 20_000, 500, 500
"""As ImageNet's: JPEGs of 500 px, and enough of them for an epoch of seconds."""


def compare(proof: Proof, *, model: str, size: int = 224, pure: bool = False, **fields: Any) -> None:
    """One round: the first epoch, and what follows for some seconds; beside bare steps alone where it is `pure`.

    Nothing is compiled, which others do not either; the part "compiling" tells what that gains.
    """
    small = proof.rehearsing
    count, side = (96, 64) if small else (IMAGES, SIDE if size > 64 else 40)
    folder = make_pictures(proof.folder / "data", count + 32, side, held_out=32, distinct=32 if small else DISTINCT)
    chosen = argparse.Namespace(rounds=1, seconds=0.5 if small else 6.0, pure=pure, gpu=proof.gpu)
    size, batch = (32, 16) if small else (size, BATCHES[model])
    forker = Forker()
    try:
        bench = Bench(chosen, forker, proof.folder)
        found = bench.pictures(
            "made", folder, size, proof.device.type, model=model, batch=batch, compile="off", **fields
        )  # fmt: skip
    finally:
        forker.close()
    title = ", ".join([f"{model} at {size} px, batch {batch}", *(f"{name} {value}" for name, value in fields.items())])
    _tell(proof, title, found)
    for what, value, aim in bench.verdicts.told:
        proof.measure(f"{title}: {what}", value, "", at_least=aim)


def _tell(proof: Proof, title: str, found: Comparison) -> None:
    for side, rates in found.rates.items():
        busy = "".join(f"GPU {share:.0%} busy, {used / 2**30:.1f} GiB" for share, used in found.gpu[side][-1:])
        first, later = (statistics.median(getattr(rate, part) for rate in rates) for part in ("first", "later"))
        proof.measure(f"{title}: {side}, first epoch", first, "images/s")
        proof.measure(f"{title}: {side}, after it", later, "images/s", text=busy)


def main() -> None:
    many = partial(compare, model="resnet50", pure=True, loader_workers=usable_cores())
    prove({
        "ResNet-18": (partial(compare, model="resnet18"), 170),
        "ResNet-50": (partial(compare, model="resnet50"), 170),
        "ViT-B/16": (partial(compare, model="vit_b_16"), 170),
        "a loader worker for each core": (many, 100),
        "ResNet-18 at 32 px": (partial(compare, model="resnet18", size=32, pure=True), 100),
        "the small network at 32 px": (partial(compare, model="mnist_cnn", size=32, pure=True), 100),
    })  # fmt: skip


if __name__ == "__main__":
    main()
