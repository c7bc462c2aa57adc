"""How large images are while a run goes on: smaller ones at first, and larger ones that validation takes the middle of."""

from __future__ import annotations

from engine.contract.catalogue import ModelEntry, StrategyEntry, TaskEntry
from engine.contract.job import Job
from engine.contract.problems import Problem

STEP = 32
"""Sides of smaller images are multiples of so many pixels, which most encoders shrink an image by."""


def side_of_epoch(job: Job, size: int, epoch: int) -> int:
    """The side of training images in `epoch`, from 1 on: it grows evenly from `progressive_from` to `size` over the first two
    thirds of the epochs (after Howard 2018, Training ImageNet in 3 hours for 25 minutes)."""
    if job.progressive_from is None:
        return size
    share = (epoch - 1) / max(1.0, job.epochs * 2 / 3)
    side = job.progressive_from + share * (size - job.progressive_from)
    return size if share >= 1 else min(size, max(STEP, int(side) // STEP * STEP))


def validation_side(job: Job, task: TaskEntry, size: int) -> int:
    """The short side to which validation images are resized, of which the middle of `size` is taken."""
    return round(size / job.val_crop) if "val_crop" in task.fields else size


def problems(
    job: Job, task: TaskEntry | None, strategy: StrategyEntry | None, model: ModelEntry | None
) -> list[Problem]:
    """What is wrong with `progressive_from`."""
    start = job.progressive_from
    if start is None or task is None or "progressive_from" in task.without:
        return []
    found = []
    size = job.image_size or (model.image_size if model is not None else None)
    least = max(STEP, model.min_image_size if model is not None else 0)
    if size is not None and start >= size:
        found.append(_wrong(f"Images that are {size} px large cannot begin with {start}.", "Set less, or empty it."))
    elif start < least:
        found.append(_wrong(f"Images of {start} px are too small.", f"Set {least} or more, or empty it."))
    if strategy is not None and strategy.schedules:
        message = f"{strategy.title} moves batches through buffers of one size."
        found.append(_wrong(message, "Empty it, or choose another strategy."))
    if job.compile == "on":
        message = "A compiled model would be compiled anew for every size of its images."
        found.append(_wrong(message, "Empty it, or set Compile the model to auto or off."))
    return found


def _wrong(message: str, remedy: str) -> Problem:
    return Problem("progressive_from", message, remedy)
