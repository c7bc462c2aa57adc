"""Checks of a job's augmentation, image sizes, optimizer and torch.compile."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

from engine.contract.augmentation import find_augmentation_kind, parse
from engine.contract.catalogue import ModelEntry, StrategyEntry, TaskEntry
from engine.contract.devices import CPU
from engine.contract.images import STEP, varying_size_fields
from engine.contract.job import FIELDS, Job
from engine.contract.problems import Problem


def augmentation_problems(job: Job) -> list[Problem]:
    """Return the problems with a job's augmentation fields."""
    kind = find_augmentation_kind(job.task)
    if kind is None and job.augmentation.name in ("medium", "strong"):
        message = "The only augmentation of this task is light, which is used instead."
        return [Problem("augmentation", message, "Choose none or light.", "warning")]
    if job.augmentation.name != "own":
        return []
    if kind is None:
        return [Problem("augmentation", "This task has no images to transform.", "Choose none or light.")]
    if not job.augmentation.transforms:
        remedy = "Give some, such as resized_crop:0.35:1, flip and color:0.2, or choose a strength."
        return [Problem("transforms", "No transforms are listed.", remedy)]
    parsed = [parse(text, kind) for text in job.augmentation.transforms]
    return [each for each in parsed if isinstance(each, Problem)]


def image_size_problems(
    job: Job, task: TaskEntry | None, strategy: StrategyEntry | None, model: ModelEntry | None
) -> Iterator[Problem]:
    """Yield the problems with the fields that make the image size change: `progressive_from` and `multi_scale`."""
    # `idle_field_warnings` reports the fields that the task ignores.
    names = [name for name in varying_size_fields(job) if task is not None and name not in task.without]
    size = job.data.image_size or (model.image_size if model is not None else None)
    min_size = max(STEP, model.min_image_size if model is not None else 0)
    start = job.data.progressive_from
    if "progressive_from" in names:
        if size is not None and start is not None and start >= size:
            message = f"The first images must be smaller than the image size of {size} px; {start} px is not."
            yield Problem("progressive_from", message, "Set a smaller size, or leave it empty.")
        elif start is not None and start < min_size:
            message = f"Images of {start} px are too small."
            yield Problem("progressive_from", message, f"Set {min_size} or more, or leave it empty.")
    for name in names:
        to_default = FIELDS[name].back_to_default
        if strategy is not None and strategy.has_schedule:
            message = f"{strategy.title} sends batches through buffers of a fixed size."
            yield Problem(name, message, f"{to_default}, or choose another strategy.")
        if job.precision.compile == "on":
            message = "A compiled model would be recompiled for every image size."
            yield Problem(name, message, f"{to_default}, or set Compile the model to auto or off.")


def optimizer_problems(job: Job, strategy: StrategyEntry) -> Iterator[Problem]:
    """Yield the problems with the job's optimizer and schedule."""
    if job.optimizer.nesterov and job.optimizer.name == "sgd" and not job.optimizer.momentum:
        message = "Nesterov momentum is a form of SGD's momentum."
        yield Problem("nesterov", message, "Set a momentum above 0, or turn it off.")
    if job.optimizer.name == "lamb" and (strategy.shards_parameters or strategy.splits_layers):
        message = (
            f"LAMB needs the norm of whole parameters, but {strategy.title} gives each device only a part of them."
        )
        yield Problem("optimizer", message, "Choose AdamW, or DistributedDataParallel.")
    if any(epoch < 1 for epoch in job.schedule.milestones):
        yield Problem("milestones", "Epochs are counted from 1.", "Give whole numbers above 0, or leave it empty.")
    uses_warmup = job.schedule.name != "onecycle"  # which has a warm-up of its own
    if uses_warmup and job.schedule.warmup_epochs >= job.training.epochs:
        message = "The warm-up does not end within the run."
        yield Problem("warmup_epochs", message, "Set fewer.", "warning")


def _get_cpp_compiler() -> str:
    """Return the name of the C++ compiler that torch.compile uses for the CPU (torch._inductor.cpp_builder)."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def speed_problems(job: Job, strategy: StrategyEntry) -> Iterator[Problem]:
    """Yield the problems with the job's field `compile`, which turns on torch.compile.

    A strategy that does not keep the full model on a device ignores the field.
    """
    if job.precision.compile != "on" or not strategy.keeps_full_model:
        return
    if CPU in job.parallel.devices and shutil.which(_get_cpp_compiler()) is None:
        message = f"torch.compile needs a C++ compiler for the CPU, and there is no {_get_cpp_compiler()} on the PATH."
        yield Problem(
            "compile", message, "Install one (on Debian and Ubuntu: sudo apt install g++), or set it to auto."
        )
    if job.parallel.activation_checkpointing:
        message = "torch.compile can't trace the recomputation of activation checkpointing."
        yield Problem("compile", message, "Set it to auto, or turn off activation checkpointing.")
    if job.parallel.static_graph and "static_graph" in strategy.fields:
        message = "DDP can't record a static graph of a compiled model."
        yield Problem("compile", message, "Set it to auto, or turn off Static graph.")
