"""Interface for custom tasks: a Python file with one class derived from `CustomTask`.

For a complete example, see `counting.py` in `resources/examples`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from engine.contract.catalogue import Measure
from engine.contract.job import Job
from engine.data.datasets.images import UnreadableImage
from engine.data.datasets.samples import SampleSet
from engine.tasks.base import Visualization

__all__ = ["CustomTask", "Job", "Measure", "SampleSet", "UnreadableImage", "Visualization"]

MAX_NUMBERS = 6
"""Largest number of values that `format_numbers` includes."""


class CustomTask(ABC):
    """Vision task defined in a user's file.

    Each job creates an instance without arguments, and then sets its attribute `job`.

    The data comes either from a folder with `annotations` that Footplate can read (`resources/catalogue.json` lists
    them with the tasks), or from `datasets`. A model returns one tensor [n, ...] for an input tensor [n, ...].
    """

    job: Job
    annotations: tuple[str, ...] = ("classes",)
    """Kinds of annotations that the folder may have: classes, labels, boxes, instances, masks, edges or points."""
    classes: tuple[str, ...] = ()
    """Names of the classes. Needed only if `datasets` returns the data and there are classes."""
    image_size = 224
    """Default image size in pixels if Footplate reads the annotations."""
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and standard deviation of each channel for images scaled to 0..1, or None for those of ImageNet."""
    metrics: tuple[Measure, ...] = ()
    """Metrics that `measure` and `build_metrics` compute.

    The first one decides which checkpoint is the best. Without metrics, the loss decides.
    """

    def datasets(self) -> tuple[SampleSet, SampleSet] | None:
        """Return the training and validation samples from the folder `self.job.data.dataset`.

        By default, this returns None, and Footplate reads the folder. Every worker calls this and must get the same
        samples.
        """
        return None

    @abstractmethod
    def build_model(self, classes: int, channels: int) -> nn.Module:
        """Build the model with new weights.

        `channels` is the number of image channels, or the first dimension of the inputs.
        """

    def transform(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Transform a training batch on the device to the form that the model receives.

        Random numbers drawn from torch here depend only on the job's seed and the index of the batch.
        """
        return inputs, targets

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, [n]. Outputs are float32."""

    def build_metrics(self) -> dict[str, Any]:
        """Return new torchmetrics metrics by the ids of the `metrics` that they compute. Each computes a single number.

        They are updated with the outputs and targets of each validation batch on the device, and merged across all
        processes. Values that are not finite are left out.
        """
        return {}

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the numbers that `summarise` needs to compute metrics, [n, k] for n samples.

        By default, these are the values of all `metrics` that `build_metrics` does not compute.
        """
        return outputs.new_zeros((len(outputs), 0))

    def summarise(self, values: Tensor) -> Sequence[float]:
        """Compute metrics from the numbers that `measure` returned for all validation samples, float64 [N, k].

        By default, each metric is the mean of its numbers. Metrics from `build_metrics` are not included.
        """
        means: list[float] = values.mean(0).tolist()
        return means

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples in a batch, or None if it is undefined."""
        return None

    def show(self, image: npt.NDArray[np.uint8], value: Tensor, *, predicted: bool) -> Visualization:
        """Draw the target of a sample, or the model's output if `predicted` is True, on or next to its image.

        `image` is uint8 [h, w, 3]. By default, the image is shown with the first numbers of the value.
        """
        return Visualization(image, format_numbers(value))


def format_numbers(value: Tensor) -> str:
    """Format the first numbers of `value` as text."""
    flat: list[Any] = value.flatten()[:MAX_NUMBERS].tolist()
    return ", ".join(f"{each:.4g}" for each in flat) + (", …" if value.numel() > MAX_NUMBERS else "")
