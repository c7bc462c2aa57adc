"""Interface for detectors: one tensor in and one tensor out, as strategies expect.

In training a detector computes its losses. In evaluation it returns a fixed number of detections for each image.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from engine.contract.job import Job
from engine.models import weights
from engine.models.model_surgery import set_heads

BOX = 6
"""Number of values per detection: x1, y1, x2, y2 in pixels, score and class."""
MASK_SIDE = 28
"""Side length of detection masks in pixels. A mask covers the box of its detection (He et al. 2017, figure 4)."""
FINE_MASK_SIDE = 56
"""Side length of the masks in pixels of models that predict them at a quarter of the image's size."""
NONE = -1
"""Class of padding among true boxes, and score of padding among detections."""

Detections = list[dict[str, Tensor]]
"""Targets or results of torchvision's detectors, one dict per image.

The keys are "boxes" [k, 4], "labels" [k] from 1 up, and optionally "masks".
"""


class TensorDetector(nn.Module):
    """Mixin for detectors from a library. It must precede the library's class in the list of base classes.

    It accepts images [n, c, h, w], and targets in training. In training, it returns the losses of each image [n, p],
    ordered like `loss_names`. All images have equal shares of the losses of the batch. In evaluation, it returns the
    detections [n, k, 6 or 6 + 28 * 28].

    Attributes:
        max_detections: Maximum number of detections per image.
        loss_names: Names of the losses, whose sum is minimized.
    """

    max_detections: int
    loss_names: tuple[str, ...]

    @abstractmethod
    def losses(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return each image's equal share of the losses for a batch, by name, as 0-dimensional tensors."""

    @abstractmethod
    def predictions(self, inputs: Tensor) -> Tensor:
        """Return the detections in images [n, k, 6 or 6 + s * s], float32."""

    @abstractmethod
    def detections(self, inputs: Tensor) -> Detections:
        """Return the detections in each image. "scores" [k] have gradients if those are enabled."""

    def loss_units(self, targets: Tensor) -> Tensor | None:
        """Return the number of units in a part of a batch. The losses are divided by it.

        The result has one number for each loss [p], or a single number for all of them. Numbers and losses are summed
        over the global batch before the division. None means that the units are the images.
        """
        return None

    def call_library(self, *args: Any, **options: Any) -> Any:
        """Return the outputs of the library's class."""
        return super().forward(*args, **options)

    def forward(self, inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        if not isinstance(inputs, Tensor):
            raise TypeError("the boxes that it processes depend on the image")
        if not self.training:
            return self.predictions(inputs)
        if targets is None:
            raise ValueError("A detector needs images and targets for training.")
        losses = self.losses(inputs, targets)
        ordered = [losses.get(name, inputs.new_zeros(())) for name in self.loss_names]
        return torch.stack([loss.float() for loss in ordered]).expand(len(inputs), -1)


class LoadableDetector(TensorDetector):
    """Mixin for detectors that load weights and adapt to the image size themselves.

    Attributes:
        heads: Names of all modules except the backbone.
    """

    heads: tuple[str, ...]

    @abstractmethod
    def fit_size(self, title: str, size: int) -> None:
        """Prepare for images of `size` px. Raises TaskError if the model can't accept them.

        Messages call it `title`.
        """

    def check_growth(self, title: str, first: int) -> None:
        """Raise TaskError if training can't start with images of `first` px, which grow in steps of `STEP` px.

        Messages call the model `title`. Call it after `fit_size`.
        """

    @abstractmethod
    def load_initial(self, initial: weights.Initial) -> None:
        """Load weights, except those that depend on other classes. Raises TaskError."""


def load_and_mark_heads(model: LoadableDetector, job: Job) -> nn.Module:
    """Load the job's weights, mark the heads, and return the model in training mode. Raises TaskError."""
    given = weights.initial(job, job.model.name)
    if given is not None:
        model.load_initial(given)
    set_heads(model, model.heads, freeze=bool(job.model.freeze_epochs))
    return model.train()
