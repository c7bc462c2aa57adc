"""Mixup and CutMix: transforms that mix the images and targets in a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.catalogue import TaskEntry
from engine.contract.job import Job
from engine.data.loading.base_loader import Finish
from engine.data.randomness import Purpose, RandomStreams


class Window(NamedTuple):
    """Rectangle in an image, in pixels from the top left. `bottom` and `right` are exclusive."""

    top: int
    bottom: int
    left: int
    right: int


def has_mixed_targets(job: Job) -> bool:
    """Return True if the targets of a job are class fractions, [n, C]."""
    return bool(job.augmentation.mixup or job.augmentation.cutmix)


def create_mixing_transform(
    job: Job, entry: TaskEntry, classes: int, streams: RandomStreams, *, training: bool
) -> Finish | None:
    """Create the transform for batches if the job mixes images in this task, otherwise return None.

    If `training` is False, the transform does not mix images, but converts targets to class fractions.
    """
    if not has_mixed_targets(job) or not {"mixup", "cutmix"} & set(entry.fields):
        return None
    if not training:
        return OneHot(classes)
    return Mixing(classes, job.augmentation.mixup, job.augmentation.cutmix, streams)


class OneHot:
    """Transform that converts targets from int64 [n] to class fractions, float32 [n, C].

    Targets that already are fractions are unchanged.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes

    def __call__(self, inputs: Tensor, targets: Tensor, epoch: int, batch_index: int) -> tuple[Tensor, Tensor]:
        return inputs, self._to_fractions(targets)

    def _to_fractions(self, targets: Tensor) -> Tensor:
        """Convert class numbers [n] to one-hot class fractions [n, C]."""
        return targets if targets.is_floating_point() else functional.one_hot(targets, self._classes).float()


class Mixing(OneHot):
    """Transform that mixes each image in a batch [n, C, H, W] with the previous one.

    Mixup (Zhang et al. 2018, section 2) computes the weighted mean of both images, and CutMix (Yun et al. 2019, section
    3.1) pastes a window from one into the other. The classes are mixed in the same proportion. The proportion is
    sampled from Beta(a, a) once per batch, as in the authors' code, where a is `mixup` or `cutmix`. It depends only on
    (seed, epoch, index of the batch), so that all ranks and resumed runs use the same value. Each rank mixes its rows
    of a batch. If neither method is switched off with 0, one of them is chosen at random for each batch.
    """

    def __init__(self, classes: int, mixup: float, cutmix: float, streams: RandomStreams) -> None:
        super().__init__(classes)
        self._mixup, self._cutmix, self._streams = mixup, cutmix, streams

    def __call__(self, inputs: Tensor, targets: Tensor, epoch: int, batch_index: int) -> tuple[Tensor, Tensor]:
        """Mix a batch, and return it with its targets as class fractions, [n, C]. `inputs` are changed in place."""
        fractions = self._to_fractions(targets)
        random = self._streams.generator(Purpose.MIX, epoch=epoch, batch=batch_index)
        is_cutmix = bool(self._cutmix) and (not self._mixup or random.random() < 0.5)
        alpha = self._cutmix if is_cutmix else self._mixup
        weight = float(random.beta(alpha, alpha))  # fraction of the image itself, not the previous one
        previous = inputs.roll(1, 0)
        if is_cutmix:
            sides = inputs.shape[-2:]
            window = choose_window(sides[0], sides[1], weight, random)
            rows, columns = slice(window.top, window.bottom), slice(window.left, window.right)
            inputs[..., rows, columns] = previous[..., rows, columns]
            weight = 1 - (window.bottom - window.top) * (window.right - window.left) / (sides[0] * sides[1])
        else:
            torch.lerp(previous, inputs, weight, out=inputs)
        return inputs, fractions.roll(1, 0).lerp(fractions, weight)


def choose_window(height: int, width: int, fraction: float, random: np.random.Generator) -> Window:
    """Choose a random window with the image's aspect ratio and 1 - `fraction` of its area.

    Its center may be anywhere in the image, and the area beyond the border is cut off (Yun et al. 2019, equation 2 and
    algorithm A1).
    """
    scale = np.sqrt(1 - fraction)
    window_height, window_width = int(height * scale), int(width * scale)
    row, column = int(random.integers(height)), int(random.integers(width))
    top, left = row - window_height // 2, column - window_width // 2
    return Window(max(top, 0), min(top + window_height, height), max(left, 0), min(left + window_width, width))
