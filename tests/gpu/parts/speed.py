"""Training speed in bf16 on JPEGs, compared with training steps alone and with timm and Lightning.

Each training loop runs for an epoch and then for some seconds. The report shows Footplate's message about the
bottleneck and the GPU's utilization.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from engine.contract.job import Job
from engine.supervisor.environment import usable_cores
from tests.benchmarks.training_speed import FOOTPLATE, Bench, Comparison
from tests.gpu.checks import CheckContext, Skipped, run_checks
from tests.support.outlined import make_outlined
from tests.support.sides import Rates
from tests.support.timed_runs import make_images
from tests.support.worker_group import Forker

BATCHES = {"resnet18": 512, "resnet50": 256, "vit_b_16": 256, "convnext_tiny": 256, "mnist_cnn": 1024}
IMAGES, DISTINCT, SIDE = 6_000, 500, 500
"""Number of JPEGs, number of different JPEGs, and their side length in pixels, which is typical for ImageNet."""
SECONDS = 4.0
"""Seconds of training after the first epoch."""


def compare(
    context: CheckContext, *, model: str, size: int = 224, pure: bool = False, compile: str = "off", **fields: Any
) -> None:
    """Compare Footplate's training speed with that of a bare loop of training steps. Each is measured once.

    Unless `pure` is True, the training loops of other tools are also compared. `compile` and `fields` are fields of
    Footplate's job, and `size` is the side of its images in pixels.
    """
    if context.rehearsing:
        model, size, batch, count, side, compile = "mnist_cnn", 32, 16, 64, 64, "off"
    else:
        batch, count, side = BATCHES[model], IMAGES, SIDE if size > 64 else 40
    folder = make_images(context.folder / "data", count + 32, side, held_out=32, distinct=min(count, DISTINCT))
    fields = {"augmentation": "medium", "compile": compile} | fields
    title = ", ".join([f"{model} at {size} px, batch {batch}", *(f"{name} {value}" for name, value in fields.items())])
    with _open_bench(context, title, pure=pure) as bench:
        found = bench.compare_images("synthetic", folder, size, context.device.type, model=model, batch=batch, **fields)
        _report(context, title, bench, found)


def compare_detector(context: CheckContext, *, model: str, size: int) -> None:
    """Compare the speed of a detector of transformers with a bare loop of steps.

    `model` is the detector, and `size` the side of the images in pixels. Images show one to three discs.
    """
    if find_spec("transformers") is None:
        raise Skipped("transformers is not installed")
    batch, count = 16, 128
    fields: dict[str, Any] = {}
    if context.rehearsing:
        model, size = ("dfine_n", 64) if model == "dfine_s" else (model, 288)
        batch, count, fields = 2, 4, {"memory_format": "contiguous", "cpu_threads": 1}
    data = make_outlined(context.folder / "data", {"train": count, "val": batch}, size)
    job = Job.from_fields(
        dataset=str(data), task="detection", model=model, image_size=size, batch_size=batch, epochs=1000,
        augmentation="light", compile="off", devices=(context.gpu,), **fields,
    )  # fmt: skip
    title = f"{model} at {size} px, batch {batch}"
    with _open_bench(context, title, pure=True) as bench:
        _report(context, title, bench, bench.compare_task("discs", job))


@contextmanager
def _open_bench(context: CheckContext, title: str, *, pure: bool) -> Iterator[Bench]:
    """Yield a benchmark of one round that reports the speed of each training loop.

    If `pure` is True, Footplate is compared only with a bare loop of training steps.
    """

    def report(name: str, rates: Rates) -> None:
        context.measure(f"{title}: {name}, first epoch", rates.first, "images/s")
        context.measure(f"{title}: {name}, later epochs", rates.later, "images/s")

    options = argparse.Namespace(rounds=1, seconds=0.5 if context.rehearsing else SECONDS, pure=pure, gpu=context.gpu)
    with closing(Forker()) as forker:
        yield Bench(options, forker, context.folder, report)


def _report(context: CheckContext, title: str, bench: Bench, found: Comparison) -> None:
    """Report the GPU usage of each training loop, Footplate's bottleneck, and the ratios of the speeds."""
    for name, usages in found.gpu.items():
        for usage in usages:
            bottleneck = bench.bottleneck if name == FOOTPLATE else ""
            context.measure(f"{title}: {name}, GPU utilization", 100 * usage.utilization, "%", text=bottleneck)
            context.measure(f"{title}: {name}, peak memory", usage.memory_bytes / 2**30, "GiB")
            if usage.sm_active is not None:
                context.measure(f"{title}: {name}, active multiprocessors", 100 * usage.sm_active, "%")
    for what, value, aim in bench.verdicts.results:
        context.measure(f"{title}: {what}", value, "", at_least=aim)


def main() -> None:
    many = partial(compare, model="resnet50", pure=True, loader_workers=usable_cores())
    run_checks({
        "ResNet-50": (partial(compare, model="resnet50"), 170),
        "ViT-B/16": (partial(compare, model="vit_b_16"), 170),
        "ConvNeXt-T": (partial(compare, model="convnext_tiny"), 170),
        "ResNet-18 at 32 px": (partial(compare, model="resnet18", size=32), 170),
        "ResNet-50, compiled": (partial(compare, model="resnet50", pure=True, compile="on"), 170),
        "ResNet-18": (partial(compare, model="resnet18"), 170),
        "ResNet-50, one loader worker per core": (many, 170),
        "D-FINE-S": (partial(compare_detector, model="dfine_s", size=640), 120),
        "RF-DETR-Nano": (partial(compare_detector, model="rfdetr_nano", size=384), 120),
        "small network at 32 px": (partial(compare, model="mnist_cnn", size=32, pure=True), 170),
    })  # fmt: skip


if __name__ == "__main__":
    main()
