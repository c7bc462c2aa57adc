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
"""Largest number of values of an output that `format_numbers` shows."""


class CustomTask(ABC):
    """Vision task defined in a user's file.

    Each job creates an instance without arguments, and then sets its attribute `job`.

    The data comes either from `datasets`, or from a folder that Footplate reads. Such a folder must contain the kinds
    of `annotations` that the task needs (`resources/catalogue.json` lists the kinds with the tasks). A model returns
    one tensor [n, ...] for an input tensor [n, ...].
    """

    job: Job
    annotations: tuple[str, ...] = ("classes",)
    """Kinds of annotations that the folder must have: classes, labels, boxes, instances, masks, edges or points."""
    classes: tuple[str, ...] = ()
    """Names of the classes. They are needed only if `datasets` returns the data and it has classes."""
    image_size = 224
    """Default side length of the images in pixels, used if Footplate reads the folder."""
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and standard deviation of each channel for images scaled to 0..1, or None for the values of ImageNet."""
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

        `channels` is the number of channels of the images or, if the task's own `datasets` provides the data, the size
        of the first dimension of a sample.
        """

    def transform(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Transform a training batch on the device to the form that the model receives.

        Random numbers from torch in this method depend only on the job's seed and the index of the batch.
        """
        return inputs, targets

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, [n]. Outputs are float32."""

    def build_metrics(self) -> dict[str, Any]:
        """Create the torchmetrics metrics, keyed by their ids in `metrics`. Each computes a single number.

        They are updated with the outputs and targets of each validation batch on the device, and merged across all
        processes. Results that are not finite are left out.
        """
        return {}

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the numbers that `summarize` needs to compute metrics, [n, k] for n samples.

        By default, there are none. The default `summarize` expects one column for each of the `metrics` that
        `build_metrics` does not compute, in the same order.
        """
        return outputs.new_zeros((len(outputs), 0))

    def summarize(self, values: Tensor) -> Sequence[float]:
        """Compute metrics from the numbers that `measure` returned for all validation samples, float64 [N, k].

        The result has a value for each of the `metrics` that `build_metrics` does not compute. By default, these are
        the means of the columns.
        """
        means: list[float] = values.mean(0).tolist()
        return means

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples in a batch, or None if this task defines no correct samples."""
        return None

    def show(self, image: npt.NDArray[np.uint8], value: Tensor, *, predicted: bool) -> Visualization:
        """Draw the target of a sample, or the model's output if `predicted` is True, on or next to its image.

        `value` is the target or the output, and `image` is uint8 [h, w, 3]. By default, the image is unchanged, and the
        text next to it contains the first numbers of `value`.
        """
        return Visualization(image, format_numbers(value))


def format_numbers(value: Tensor) -> str:
    """Format up to `MAX_NUMBERS` values of a target or an output as text."""
    flat: list[Any] = value.flatten()[:MAX_NUMBERS].tolist()
    return ", ".join(f"{each:.4g}" for each in flat) + (", …" if value.numel() > MAX_NUMBERS else "")
