"""Preparation of images for a model, and the legend of images for users."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from engine.contract.catalogue import TaskEntry
from engine.contract.job import Job
from engine.contract.problems import Problem

Framing = Literal["crop", "whole", "continued", ""]
"""Way to make an image square.

"crop" crops its center, "whole" pads the full image with black, and "continued" pads it with its border pixels. "" is
used for samples that are not images.
"""


class Preprocessing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Preprocessing of samples.

    Attributes:
        mean: Mean of each channel, for values scaled to 0..1. For points, it is that of the original values.
        std: Standard deviation of each channel.
        low: Values that are mapped to 0, for multi-band TIFFs.
        high: Values that are mapped to 1, for multi-band TIFFs.
        features: Features of a point in addition to its position.
        values: Value of each class in the point cloud files used for training.
    """

    framing: Framing = "crop"
    mean: tuple[float, ...]
    std: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    features: tuple[str, ...] = ()
    values: tuple[int, ...] = ()


class LegendEntry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Color in an image and its meaning, usually a class.

    `color` is "#rrggbb", or "" for pixels that are not colored.
    """

    name: str
    color: str


CLOUD_TEXT = "points"
"""Key of the text in a PNG image of a point cloud that holds its points, so that a window can turn them.

The text is the base64 code of zlib data with 9 bytes per point: its position along the cloud's principal axes, the one
of the greatest scatter first, as little-endian int16 from -32767 to 32767, and its color as red, green and blue. Black
points are drawn in gray.
"""
CLOUD_TILT_DEG = 40.0
"""Angle in degrees between the direction of view and the axis along which the points of a cloud vary least."""
CLOUD_GRAY = (245, 200, 70)
"""Gray levels in images of point clouds: background, farthest and nearest points that have no color."""

STEP = 32
"""Default step between the image sizes of a training, in pixels. It is the stride of most encoders."""


class SizeLimits(NamedTuple):
    """Limits for the image sizes of a training: the minimum side length and the step between sizes, in pixels."""

    smallest: int = STEP
    step: int = STEP


def image_size_problem(title: str, size: int, smallest: int, step: int = 1) -> Problem | None:
    """Return the problem with images of `size` px for the model called `title`, or None if it accepts them.

    The model accepts multiples of `step` from `smallest` on.
    """
    if size >= smallest and size % step == 0:
        return None
    needed = f"{title} needs an image size of at least {smallest} px"
    if step == 1:
        return Problem("image_size", f"{needed}.", f"Set {smallest} or more, or leave it empty.")
    nearest = max(math.ceil(smallest / step), round(size / step)) * step
    return Problem("image_size", f"{needed} that is a multiple of {step} px.", f"Set {nearest}, or leave it empty.")


USUAL_LIMITS = SizeLimits()
"""Default limits of the image size, for models that state no others."""


VARYING_SIZE_FIELDS = ("progressive_from", "multi_scale")
"""Job fields that make the image size change during training."""


def varying_size_fields(job: Job) -> list[str]:
    """Return the names of the fields that make the image size change during the job's training."""
    return [name for name in VARYING_SIZE_FIELDS if job.value(name)]


def side_of_epoch(job: Job, size: int, epoch: int, limits: SizeLimits = USUAL_LIMITS) -> int:
    """Return the side length of training images in `epoch`, counted from 1, without the variation by `multi_scale`.

    If the job sets `progressive_from`, the length grows linearly from there to `size` over the first two thirds of the
    epochs (after Howard 2018, Training ImageNet in 3 hours for 25 minutes). Otherwise it is `size`.
    """
    if job.data.progressive_from is None:
        return size
    progress = (epoch - 1) / (job.training.epochs * 2 / 3)
    if progress >= 1:
        return size
    side = job.data.progressive_from + progress * (size - job.data.progressive_from)
    rounded = int(side) // limits.step * limits.step
    return min(size, max(limits.step, rounded))


def sides_of_epoch(job: Job, size: int, epoch: int, limits: SizeLimits = USUAL_LIMITS) -> Sequence[int]:
    """Return the side lengths that the batches of `epoch` can have, in ascending order.

    These are the multiples of `limits.step` that differ from `side_of_epoch` by at most the fraction `multi_scale` of
    it. If that is 0 or there are none, `side_of_epoch` is the only one.
    """
    side, change = side_of_epoch(job, size, epoch, limits), job.data.multi_scale
    if not change:
        return (side,)
    first = max(limits.smallest, math.ceil(side * (1 - change) / limits.step) * limits.step)
    multiples = range(first, math.floor(side * (1 + change)) + 1, limits.step)
    return multiples or (side,)  # a small change may contain no multiple


def validation_side(job: Job, task: TaskEntry, size: int) -> int:
    """Return the length of the shorter side of resized validation images, before their center is cropped to `size`.

    Tasks without the job field `val_crop` don't crop validation images.
    """
    return round(size / job.data.val_crop) if "val_crop" in task.fields else size
