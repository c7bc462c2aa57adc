"""Checks of torch.compile: steps don't compile again after the warm-up, and losses equal those of eager steps."""

from __future__ import annotations

import shutil
import statistics
from functools import partial
from typing import Any

import torch

from engine.contract.events import Chosen
from engine.contract.job import Job
from tests.gpu.checks import CheckContext, Skipped, run_checks
from tests.gpu.hooks import MODE, STEPS, read_record
from tests.gpu.jobs import SMALL, write_class_folders, write_model_file
from tests.support.timed_runs import make_images
from tests.support.worker_group import WorkerGroup

COUNT = "tests.gpu.hooks:record_launches"
TOLERANCE = 2e-2
GRAPHS = "reduce-overhead"
"""Mode of torch.compile that records CUDA graphs."""


def _job(context: CheckContext, **fields: Any) -> Job:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        raise Skipped("no C compiler found")
    folder = context.folder / "data"
    data = folder if folder.exists() else write_class_folders(folder, {"train": 72, "val": 21})
    given: dict[str, Any] = {
        "dataset": str(data), "image_size": 16, "batch_size": 12, "epochs": 2, "precision": "fp32", "learning_rate": 0.02,
        "memory_format": "contiguous", "devices": (context.gpu,), **write_model_file(SMALL, context.folder),
    }  # fmt: skip
    return Job.from_fields(**(given | fields))


def _get_batchnorm_statistics(group: WorkerGroup) -> torch.Tensor:
    """Return the running statistics of all BatchNorm layers at the end of a run."""
    state = group.checkpoint()["model"]
    return torch.cat([tensor.flatten() for name, tensor in state.items() if "running_" in name])


def compare_compiled_steps(context: CheckContext, *, mode: str) -> None:
    """Compare the kernel launches, losses and BatchNorm statistics of compiled steps with those of eager steps.

    `mode` is the mode of torch.compile. One step of the first epoch and one after a validation are profiled.
    """
    if mode == GRAPHS:
        context.require_gpu("CUDA graphs need one")
    eager = context.run(_job(context, compile="off"), prepare=COUNT, environment={STEPS: "5,10"})
    variables = {STEPS: "5,10", MODE: mode}
    compiled = context.run(_job(context), seconds=150, prepare=COUNT, environment=variables)
    usual, found = read_record(eager.folder), read_record(compiled.folder)
    context.claim(f"{mode}: steps run compiled code", all(each["regions"] for each in found), str(found))
    if not context.rehearsing:
        kernels = [statistics.mean(each["kernels"] for each in counts) for counts in (found, usual)]
        context.measure(f"{mode}: kernels per step", kernels[0], "", at_most=kernels[1], text=f"{kernels[1]:.0f} eager")
        context.measure(f"{mode}: Triton kernels per step", min(each["fused"] for each in found), "", at_least=1)
    if mode == GRAPHS and not context.rehearsing:
        context.measure(f"{mode}: CUDA graphs per step", min(each["graphs"] for each in found), "", at_least=1)
    off = max(abs(one - other) for one, other in zip(compiled.losses, eager.losses, strict=True))
    context.measure(f"{mode}: maximum difference from eager losses", off, "", at_most=TOLERANCE, anywhere=True)
    moved, expected = _get_batchnorm_statistics(compiled), _get_batchnorm_statistics(eager)
    off = float((moved - expected).abs().max() / expected.abs().max())
    context.measure(f"{mode}: maximum relative difference of BatchNorm statistics from eager ones", off, "", at_most=TOLERANCE, anywhere=True,
                  text="graphs are recorded on copies of them")  # fmt: skip


def check_unfreezing(context: CheckContext) -> None:
    """Check that a model with frozen layers trains compiled until they are unfrozen, and eagerly afterwards."""
    frozen = {"freeze_epochs": 1}
    eager = context.run(_job(context, compile="off", **frozen))
    job = _job(context, compile="on", **frozen)
    compiled = context.run(job, seconds=150, prepare=COUNT, environment={STEPS: "4,10"})
    before, after = read_record(compiled.folder)
    context.claim("frozen: steps run compiled code", before["regions"] > 0, str(before))
    context.claim("unfrozen: steps are eager, and the run reports it", not after["regions"] and any(
        event.field == "compile" and event.choice == "off" for event in compiled.of(Chosen)), str(after))  # fmt: skip
    off = max(abs(one - other) for one, other in zip(compiled.losses, eager.losses, strict=True))
    context.measure(
        "frozen and unfrozen: maximum difference from eager losses", off, "", at_most=TOLERANCE, anywhere=True
    )


def check_automatic_choices(context: CheckContext) -> None:
    """Check that a long ResNet-50 run tries whether to compile the model, and report all its automatic choices."""
    context.require_gpu("on the CPU, models are compiled only on request")
    data = make_images(context.folder / "data", 512 + 8, 224, held_out=8, distinct=64)
    job = Job.from_fields(
        dataset=str(data), model="resnet50", image_size=224, batch_size=64, epochs=10_000, devices=(context.gpu,),
    )  # fmt: skip
    group = context.start(job, threads=4, every_step=True)
    group.read(lambda _, message: getattr(message, "step", 0) >= 3 and type(message).__name__ == "StepMetrics", 240)
    choices = {event.field: event for event in group.of(Chosen)}
    context.claim("trials decide whether to compile", "compile" in choices)
    for event in choices.values():
        context.report_fact(f"ResNet-50 at 224 px, batch 64: {event.field}", f"{event.choice}: {event.why}")


def main() -> None:
    run_checks({
        "default": (partial(compare_compiled_steps, mode="default"), 200),
        "CUDA graphs": (partial(compare_compiled_steps, mode=GRAPHS), 200),
        "unfreezing": (check_unfreezing, 200),
        "automatic choices": (check_automatic_choices, 250),
    })  # fmt: skip


if __name__ == "__main__":
    main()
