"""Interface of detectors: one tensor in and one tensor out, as strategies expect.

In training a detector computes its losses. In evaluation it returns a fixed number of detections for each image.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from engine.models.weights import Initial

BOX = 6
"""Number of values of a detection: x1, y1, x2, y2 in pixels, score and class."""
MASK_SIDE = 28
"""Side of the masks of detections, which are relative to their box (He et al. 2017, figure 4)."""
NONE = -1
"""Class of padding among true boxes, and score of padding among detections."""

Detections = list[dict[str, Tensor]]
"""Targets or results of torchvision's detectors, per image: "boxes" [k, 4], "labels" [k] from 1 up, and optionally
"masks".
"""


class TensorDetector(nn.Module):
    """Mixin for detectors of a library, which precedes the library's class in the list of base classes.

    It accepts images [n, c, h, w], and targets in training. In training, it returns the losses of each image [n, p], ordered
    like `loss_names`; all images have equal shares of the losses of the batch. In evaluation, it returns the detections
    [n, k, 6 or 6 + 28 * 28].

    Attributes:
        max_detections: Maximum number of detections per image.
        loss_names: Names of the losses, whose sum is trained.
    """

    max_detections: int
    loss_names: tuple[str, ...]

    @abstractmethod
    def losses(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return each image's equal share of the losses of a batch, by name, without dimensions."""

    @abstractmethod
    def predict(self, inputs: Tensor) -> Tensor:
        """Return the detections in images [n, k, 6 or 6 + 28 * 28], float32."""

    @abstractmethod
    def detections(self, inputs: Tensor) -> Detections:
        """Return each image's detections; "scores" [k] have gradients if those are enabled."""

    def call_library(self, *args: Any, **options: Any) -> Any:
        """Return the outputs of the library's class."""
        return super().forward(*args, **options)

    def forward(self, inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        if not isinstance(inputs, Tensor):
            raise TypeError("the boxes that it processes depend on the image")
        if not self.training:
            return self.predict(inputs)
        if targets is None:
            raise ValueError("A detector needs images and targets for training.")
        losses = self.losses(inputs, targets)
        ordered = [losses.get(name, inputs.new_zeros(())) for name in self.loss_names]
        return torch.stack([loss.float() for loss in ordered]).expand(len(inputs), -1)


class LoadableDetector(TensorDetector):
    """Mixin for detectors that load weights and adapt to the image size themselves.

    Attributes:
        heads: Names of all modules except for the backbone.
    """

    heads: tuple[str, ...]

    @abstractmethod
    def fit_size(self, title: str, size: int) -> None:
        """Prepare for images of `size` px. Raises TaskError if the model can't take them; `title` names it."""

    @abstractmethod
    def load_initial(self, initial: Initial) -> None:
        """Load weights; those that depend on other classes are left out. Raises TaskError."""
