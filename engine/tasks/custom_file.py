"""Interface of custom tasks: a Python file with one class that is derived from `OwnTask`.

A worked example is `counting.py` in `resources/examples`.
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

__all__ = ["Job", "Measure", "OwnTask", "SampleSet", "UnreadableImage", "Visualization"]

Shown, UnreadablePicture = Visualization, UnreadableImage
"""Earlier names, for existing files."""
NUMBERS_TOLD = 6


class OwnTask(ABC):
    """A task of one's own. An object of it is made for each job, without arguments; `job` is set then.

    Its data are either a folder with `annotations` that Footplate reads (`resources/catalogue.json` lists them with the
    tasks), or what `datasets` gives. A model gives one tensor [n, ...] for an input tensor [n, ...].
    """

    job: Job
    annotations: tuple[str, ...] = ("classes",)
    """Kinds of annotations that the folder may have (classes, labels, boxes, instances, masks, edges, points)."""
    classes: tuple[str, ...] = ()
    """The names of the classes, if `datasets` returns the data and there are classes."""
    image_size = 224
    """The default image size in pixels, if `annotations` are read."""
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """The mean and standard deviation of each channel of images scaled to 0..1; ImageNet's where None."""
    measures: tuple[Measure, ...] = ()
    """The metrics that `measure` and `metrics` return; the first decides which checkpoint is best, or the loss if
    there are none."""

    def datasets(self) -> tuple[SampleSet, SampleSet] | None:
        """Return training and validation samples of the folder `self.job.data.dataset`, if Footplate does not read it.

        It is called in every worker, and must return the same samples in all.
        """
        return None

    @abstractmethod
    def build_model(self, classes: int, channels: int) -> nn.Module:
        """Build the model with fresh weights; `channels` are the images', or the first dimension of the inputs."""

    def transform(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return a training batch as the model takes it, on the device.

        torch's random draws in it depend on the job's seed and the index of the batch only.
        """
        return inputs, targets

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, [n]. Outputs are float32."""

    def metrics(self) -> dict[str, Any]:
        """Return new metrics of torchmetrics by the ids of those `measures` that they compute, each a single number.

        They are updated with the outputs and targets of each validation batch on the device, and merged over all processes. A
        value that is not finite is left out.
        """
        return {}

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return values of each sample for `summarise`, [n, k]; by default those of the other `measures`."""
        return outputs.new_zeros((len(outputs), 0))

    def summarise(self, values: Tensor) -> Sequence[float]:
        """Return each of the other `measures`, from the values of all validation samples, float64 [N, k].

        By default these are the means.
        """
        means: list[float] = values.mean(0).tolist()
        return means

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples of the batch; None if it is undefined."""
        return None

    def show(self, image: npt.NDArray[np.uint8], value: Tensor, *, predicted: bool) -> Visualization:
        """Draw a sample's target, or the model's output for it if `predicted`, on or next to its image, uint8 [h, w, 3].

        By default the image is shown with the first numbers of the value.
        """
        return Visualization(image, in_numbers(value))


def in_numbers(value: Tensor) -> str:
    """Return the first numbers of `value` as text."""
    flat: list[Any] = value.flatten()[:NUMBERS_TOLD].tolist()
    return ", ".join(f"{each:.4g}" for each in flat) + (", …" if value.numel() > NUMBERS_TOLD else "")
