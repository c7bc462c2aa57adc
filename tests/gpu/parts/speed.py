"""Training speed in bf16 on JPEGs, compared with training steps alone and with timm and Lightning.

Each side trains for an epoch, then for some seconds. Footplate's message about the bottleneck is reported together with
the GPU's utilization.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from functools import partial
from typing import Any

from engine.supervisor.environment import usable_cores
from tests.benchmarks.training_speed import FOOTPLATE, Bench
from tests.gpu.proof import Proof, prove
from tests.support.sides import Rates
from tests.support.timed_runs import make_images
from tests.support.worker_group import Forker

BATCHES = {"resnet18": 512, "resnet50": 256, "vit_b_16": 256, "convnext_tiny": 256, "mnist_cnn": 1024}
IMAGES, DISTINCT, SIDE = 6_000, 500, 500
"""Number of JPEGs, number of different ones, and side length in pixels, which is typical for ImageNet."""
SECONDS = 4.0
"""Seconds of training after the first epoch."""


def compare(
    proof: Proof, *, model: str, size: int = 224, pure: bool = False, compile: str = "off", **fields: Any
) -> None:
    """Time each training loop once; if `pure`, only Footplate and training steps alone."""
    if proof.rehearsing:
        model, size, batch, count, side, compile = "mnist_cnn", 32, 16, 64, 64, "off"
    else:
        batch, count, side = BATCHES[model], IMAGES, SIDE if size > 64 else 40
    folder = make_images(proof.folder / "data", count + 32, side, held_out=32, distinct=min(count, DISTINCT))
    fields = {"augmentation": "medium", "compile": compile} | fields
    title = ", ".join([f"{model} at {size} px, batch {batch}", *(f"{name} {value}" for name, value in fields.items())])

    def report(name: str, rates: Rates) -> None:
        proof.measure(f"{title}: {name}, first epoch", rates.first, "images/s")
        proof.measure(f"{title}: {name}, after it", rates.later, "images/s")

    options = argparse.Namespace(rounds=1, seconds=0.5 if proof.rehearsing else SECONDS, pure=pure, gpu=proof.gpu)
    with closing(Forker()) as forker:
        bench = Bench(options, forker, proof.folder, report)
        found = bench.images("synthetic", folder, size, proof.device.type, model=model, batch=batch, **fields)
    for name, ((utilization, used),) in found.gpu.items() if not proof.rehearsing else ():
        text = f"{used / 2**30:.1f} GiB in use" + (f"; {bench.bottleneck}" if name == FOOTPLATE else "")
        proof.measure(f"{title}: {name}, GPU utilization", 100 * utilization, "%", text=text)
    for what, value, aim in bench.verdicts.results:
        proof.measure(f"{title}: {what}", value, "", at_least=aim)


def main() -> None:
    many = partial(compare, model="resnet50", pure=True, loader_workers=usable_cores())
    prove({
        "ResNet-50": (partial(compare, model="resnet50"), 170),
        "ViT-B/16": (partial(compare, model="vit_b_16"), 170),
        "ConvNeXt-T": (partial(compare, model="convnext_tiny"), 170),
        "ResNet-18 at 32 px": (partial(compare, model="resnet18", size=32), 170),
        "ResNet-50, compiled": (partial(compare, model="resnet50", pure=True, compile="on"), 170),
        "ResNet-18": (partial(compare, model="resnet18"), 170),
        "ResNet-50, a loader worker for each core": (many, 170),
        "the small network at 32 px": (partial(compare, model="mnist_cnn", size=32, pure=True), 170),
    })  # fmt: skip


if __name__ == "__main__":
    main()
