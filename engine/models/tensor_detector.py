"""Interface for detectors, which have one tensor as input and one tensor as output, as strategies expect.

In training, a detector computes its losses. In evaluation, it returns a fixed number of detections for each image.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from engine.contract.images import USUAL_LIMITS, SizeLimits, varying_size_fields
from engine.contract.job import FIELDS, Job
from engine.models import weights
from engine.models.base import TaskError
from engine.models.model_surgery import set_heads

DETECTION_VALUES = 6
"""Number of values per detection: x1, y1, x2, y2 in pixels, score and class."""
MASK_SIDE = 28
"""Side length in cells of the masks that detectors return.

A mask covers its detection's box (He et al. 2017, figure 4).
"""
FINE_MASK_SIDE = 56
"""Side length in cells of the masks from models that predict masks at a quarter of the image's size."""
NO_SCORE = -1
"""Class number of padding rows in targets, and score of padding rows in detections."""

Detections = list[dict[str, Tensor]]
"""Targets or results of torchvision's detectors, with one dict per image.

The keys are "boxes" [k, 4], "labels" [k] from 1 on, and optionally "masks" and "scores" [k].
"""


class TensorDetector(nn.Module):
    """Mixin for detectors from a library. It must precede the library's class in the list of base classes.

    It accepts images [n, c, h, w], and targets in training. In training, it returns losses [n, p] in the order of
    `loss_names`. The batch's losses are divided equally among its images. In evaluation, it returns detections [n, k, 6
    or 6 + s * s], with s * s mask values for detectors with masks.

    Attributes:
        max_detections: Maximum number of detections per image.
        loss_names: Names of the losses. Their sum is minimized.
    """

    max_detections: int
    loss_names: tuple[str, ...]

    @abstractmethod
    def compute_losses(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute the losses of a batch by name, each divided by the number of images, as 0-dimensional tensors."""

    @abstractmethod
    def compute_predictions(self, inputs: Tensor) -> Tensor:
        """Return a fixed number of detections for each image, float32 [n, k, 6 or 6 + s * s].

        The columns are the box x1, y1, x2, y2, the score, the class and, for detectors with masks, s * s mask values.
        """

    @abstractmethod
    def detect(self, inputs: Tensor) -> Detections:
        """Return a dict of detections for each image, like torchvision's detectors.

        If gradients are enabled, the scores have gradients.
        """

    def loss_units(self, targets: Tensor) -> Tensor | None:
        """Return the divisors of this rank's losses, such as the number of annotated objects.

        The result has one number for each loss [p], or a single number for all losses. These numbers and the losses are
        summed over the global batch before the division. None means that the losses are divided by the number of
        images.
        """
        return None

    def call_library(self, *args: Any, **options: Any) -> Any:
        """Return the result of the forward method of the library's detector class, which this mixin overrides."""
        return super().forward(*args, **options)

    def forward(self, inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the losses [n, losses] in training, in the order of `loss_names`, and otherwise the detections."""
        if not isinstance(inputs, Tensor):  # a proxy, when the model is traced to split it; the user sees this reason
            raise TypeError("the boxes that it processes depend on the image")
        if not self.training:
            return self.compute_predictions(inputs)
        if targets is None:
            raise ValueError("A detector needs images and targets for training.")
        losses = self.compute_losses(inputs, targets)
        ordered = [losses.get(name, inputs.new_zeros(())) for name in self.loss_names]
        return torch.stack([loss.float() for loss in ordered]).expand(len(inputs), -1)


class LoadableDetector(TensorDetector):
    """Base class of detectors that load pretrained weights themselves and adapt to the size of the images.

    Attributes:
        heads: Names of all modules except the backbone.
    """

    heads: tuple[str, ...]

    @property
    @abstractmethod
    def accepted_sizes(self) -> SizeLimits:
        """Minimum image size of the model and the step between its sizes, for images that all have the same size."""

    @abstractmethod
    def adapt_to_size(self, title: str, size: int) -> None:
        """Adapt the model to images of `size` px. Raises TaskError if it can't accept them.

        `title` is the model's name in the error message.
        """

    @property
    def size_limits(self) -> SizeLimits | None:
        """Limits for image sizes that change during training, or None if only one size per training is possible."""
        return USUAL_LIMITS

    @abstractmethod
    def load_initial(self, initial: weights.InitialWeights) -> None:
        """Load the weights that a job starts from. Raises TaskError.

        Those that depend on the classes are left out if the number of classes differs.
        """


def adapt_to_image_sizes(model: LoadableDetector, job: Job, size: int) -> None:
    """Adapt a model to images of `size` px, and check that it accepts all image sizes of the job. Raises TaskError."""
    model.adapt_to_size(job.model.name, size)
    limits, first_size = model.size_limits, job.data.progressive_from
    varying_fields = varying_size_fields(job)
    if limits is None and varying_fields:
        message = f"{job.model.name} is built for a fixed image size."
        remedy = f"{FIELDS[varying_fields[0]].back_to_default}, or choose another model."
        raise TaskError(varying_fields[0], message, remedy)
    if limits is not None and first_size is not None and first_size < limits.smallest:
        message = f"{job.model.name} needs images of at least {limits.smallest} px."
        raise TaskError("progressive_from", message, f"Set {limits.smallest} or more, or leave it empty.")


def load_and_mark_heads(model: LoadableDetector, job: Job) -> nn.Module:
    """Load the weights that the job starts from, and return the model in training mode.

    Marks the model's heads, and freezes the other modules if the job asks for it (see `set_heads`). Raises TaskError if
    the weights can't be read.
    """
    initial = weights.read_initial(job, job.model.name)
    if initial is not None:
        model.load_initial(initial)
    set_heads(model, model.heads, freeze=bool(job.model.freeze_epochs))
    return model.train()
