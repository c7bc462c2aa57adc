"""Interface of custom tasks: a Python file with one class derived from `CustomTask`.

`counting.py` in `resources/examples` is a complete example.
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
"""Number of numbers in a value that its text shows."""


class CustomTask(ABC):
    """Vision task that a user's file defines.

    Each job creates an instance without arguments, and sets `job` afterwards.

    The data is either a folder with `annotations` that Footplate can read (`resources/catalogue.json` lists them with
    the tasks), or the result of `datasets`. A model returns one tensor [n, ...] for an input tensor [n, ...].
    """

    job: Job
    annotations: tuple[str, ...] = ("classes",)
    """Kinds of annotations that the folder may have: classes, labels, boxes, instances, masks, edges or points."""
    classes: tuple[str, ...] = ()
    """Names of the classes if `datasets` returns the data and there are classes."""
    image_size = 224
    """Default image size in pixels if Footplate reads the annotations."""
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and standard deviation of each channel for images scaled to 0..1; None for ImageNet's."""
    metrics: tuple[Measure, ...] = ()
    """Metrics that `measure` and `build_metrics` compute.

    The first one decides which checkpoint is best; without metrics, the loss decides.
    """

    def datasets(self) -> tuple[SampleSet, SampleSet] | None:
        """Return training and validation samples from the folder `self.job.data.dataset` if Footplate does not read it.

        Every worker calls this, and must get the same samples.
        """
        return None

    @abstractmethod
    def build_model(self, classes: int, channels: int) -> nn.Module:
        """Build the model with fresh weights.

        `channels` is the number of image channels, or the first dimension of the inputs.
        """

    def transform(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Transform a training batch, on the device, to the form that the model receives.

        Random numbers drawn from torch here depend only on the job's seed and the index of the batch.
        """
        return inputs, targets

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, [n]. Outputs are float32."""

    def build_metrics(self) -> dict[str, Any]:
        """Return new torchmetrics metrics, each for a single number, by the ids of the `metrics` that they compute.

        They are updated with the outputs and targets of each validation batch on the device, and merged across all
        processes. Values that are not finite are left out.
        """
        return {}

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return numbers for each sample, [n, k], from which `summarise` computes metrics.

        By default these are the other `metrics`, one number for each.
        """
        return outputs.new_zeros((len(outputs), 0))

    def summarise(self, values: Tensor) -> Sequence[float]:
        """Compute the other `metrics` from the numbers of all validation samples, float64 [N, k].

        By default each metric is the mean of its numbers.
        """
        means: list[float] = values.mean(0).tolist()
        return means

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples in the batch; None if it is undefined."""
        return None

    def show(self, image: npt.NDArray[np.uint8], value: Tensor, *, predicted: bool) -> Visualization:
        """Draw a sample's target, or the model's output if `predicted`, on or next to its image, uint8 [h, w, 3].

        By default the image is shown with the first numbers of the value.
        """
        return Visualization(image, format_numbers(value))


def format_numbers(value: Tensor) -> str:
    """Return the first numbers of `value` as text."""
    flat: list[Any] = value.flatten()[:MAX_NUMBERS].tolist()
    return ", ".join(f"{each:.4g}" for each in flat) + (", …" if value.numel() > MAX_NUMBERS else "")
