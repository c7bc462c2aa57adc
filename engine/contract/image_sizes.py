"""How large images are while a run goes on: smaller ones at first, and larger ones that validation takes the middle
of.
"""

from __future__ import annotations

from engine.contract.catalogue import TaskEntry
from engine.contract.job import Job

STEP = 32
"""Sides of smaller images are multiples of so many pixels, which most encoders shrink an image by."""


def side_of_epoch(job: Job, size: int, epoch: int) -> int:
    """The side of training images in `epoch`, from 1 on: it grows evenly from `progressive_from` to `size` over the
    first two thirds of the epochs (after Howard 2018, Training ImageNet in 3 hours for 25 minutes).
    """
    if job.data.progressive_from is None:
        return size
    share = (epoch - 1) / max(1.0, job.training.epochs * 2 / 3)
    side = job.data.progressive_from + share * (size - job.data.progressive_from)
    return size if share >= 1 else min(size, max(STEP, int(side) // STEP * STEP))


def validation_side(job: Job, task: TaskEntry, size: int) -> int:
    """The short side to which validation images are resized, of which the middle of `size` is taken."""
    return round(size / job.data.val_crop) if "val_crop" in task.fields else size
