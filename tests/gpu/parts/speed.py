"""Training at 224 px in bf16 from JPEGs, against bare steps on a batch in memory and other loops."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from engine.supervisor.environment import usable_cores
from tests.benchmarks.training_speed import Bench
from tests.gpu.proof import Proof, prove
from tests.support.sides import Rates
from tests.support.timed_runs import make_images
from tests.support.worker_group import Forker

BATCHES = {"resnet18": 512, "resnet50": 256, "vit_b_16": 256, "mnist_cnn": 1024}
IMAGES, DISTINCT, SIDE = 20_000, 500, 500
"""As ImageNet's: JPEGs of 500 px, and enough of them for an epoch of seconds."""


def compare(proof: Proof, *, model: str, size: int = 224, pure: bool = False, **fields: Any) -> None:
    """One round: the first epoch, and what follows for some seconds; beside bare steps alone where it is `pure`.

    Nothing is compiled, which others do not either; the part "compiling" tells what that gains.
    """
    small = proof.rehearsing
    if small:
        model, size, batch, count, side = "mnist_cnn", 32, 16, 64, 64
    else:
        batch, count, side = BATCHES[model], IMAGES, SIDE if size > 64 else 40
    folder = make_images(proof.folder / "data", count + 32, side, held_out=32, distinct=min(count, DISTINCT))
    title = ", ".join([f"{model} at {size} px, batch {batch}", *(f"{name} {value}" for name, value in fields.items())])

    def report_rates(side: str, rates: Rates) -> None:
        proof.measure(f"{title}: {side}, first epoch", rates.first, "images/s")
        proof.measure(f"{title}: {side}, after it", rates.later, "images/s")

    chosen = argparse.Namespace(rounds=1, seconds=0.5 if small else 6.0, pure=pure, gpu=proof.gpu)
    forker = Forker()
    try:
        bench = Bench(chosen, forker, proof.folder, report_rates)
        found = bench.images("made", folder, size, proof.device.type, model=model, batch=batch, compile="off", **fields)
    finally:
        forker.close()
    for side, ((busy, used),) in found.gpu.items() if not small else ():
        proof.measure(f"{title}: {side}, GPU at work", 100 * busy, "%", text=f"{used / 2**30:.1f} GiB in use")
    for what, value, aim in bench.verdicts.results:
        proof.measure(f"{title}: {what}", value, "", at_least=aim)


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
