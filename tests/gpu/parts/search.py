"""Effect of cuDNN's benchmark mode (`torch.backends.cudnn.benchmark`) on the first step and on later steps."""

from __future__ import annotations

import time
from functools import partial

from engine.contract.events import EpochStarted, StepMetrics
from engine.contract.job import Job
from tests.gpu.checks import CheckContext, run_checks
from tests.support.outlined import make_outlined
from tests.support.timed_runs import make_images

MODELS = {
    "resnet50": "classification",
    "mobilenet_v3_large": "classification",
    "ssdlite320_mobilenet_v3_large": "detection",
    "maskrcnn": "instance_segmentation",
}
WARM = 10
"""Number of warm-up steps to ignore."""


def compare_benchmark_mode(context: CheckContext, *, model: str) -> None:
    """Measure the first step and the later speed of a model, with cuDNN's benchmark mode and without it.

    Footplate doesn't use this mode, so the check fails if training without it is more than 5% slower.
    """
    side, batch, steps = (64, 2, 3) if context.rehearsing else (256, 8, 60)
    warm = 1 if context.rehearsing else WARM
    if MODELS[model] == "classification":
        batch *= 4
        data = make_images(context.folder / "data", 16 * batch + 8, side, held_out=8, distinct=64)
    else:
        data = make_outlined(context.folder / "data", {"train": 64, "val": 8}, side)
    job = Job.from_fields(
        dataset=str(data), task=MODELS[model], model=model, image_size=side, batch_size=batch, epochs=1000,
        optimizer="adam", learning_rate=1e-4, compile="off", memory_format="contiguous", predictions=0,
        checkpoint_minutes=0, devices=(context.gpu,),
    )  # fmt: skip
    rates = {}
    for title, hooked in {
        "with the search": {"prepare": "tests.gpu.hooks:enable_benchmark_mode"},
        "default": {},
    }.items():
        group = context.start(job, every_step=True, threads=2, **hooked)
        group.read(lambda _, message: isinstance(message, EpochStarted))
        started = time.monotonic()
        group.read_steps(1)
        context.measure(f"{model}, {title}: first step", time.monotonic() - started, "s")
        group.read_steps(warm + steps)
        group.close()
        waited = {metrics.step: metrics.images_per_second for metrics in group.of(StepMetrics)}
        taken = [batch / waited[step] for step in range(warm + 1, warm + steps + 1)]
        rates[title] = batch * steps / sum(taken)
        context.measure(f"{model}, {title}", rates[title], "images/s")
    context.measure(
        f"{model}: default relative to search", rates["default"] / rates["with the search"], "", at_least=0.95
    )


def main() -> None:
    run_checks({model: (partial(compare_benchmark_mode, model=model), 120) for model in MODELS})


if __name__ == "__main__":
    main()
