"""What a Python file with a task of one's own defines: one class, derived from `OwnTask`.

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
        """Training and validation of the folder `self.job.data.dataset`, if Footplate does not read it. Called in
        every worker, which all are to get the same.
        """
        return None

    @abstractmethod
    def build_model(self, classes: int, channels: int) -> nn.Module:
        """The model, with fresh weights. `channels` are the images', or the first dimension of the inputs."""

    def transform(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """A batch of training as the model is to be given it, on the device. What torch draws at random in it depends
        on the job's seed and the index of the batch alone.
        """
        return inputs, targets

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, [n]. Outputs are float32."""

    def metrics(self) -> dict[str, Any]:
        """New metrics of torchmetrics, or of classes derived from `torchmetrics.Metric`, by the ids of those of
        `measures` that they compute, each a single number. They are given the outputs and targets of each batch of a
        validation, on the device, and joined over all processes; a value that is not finite is left out.
        """
        return {}

    def measure(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What `summarise` is to know of each sample, [n, k]: by default the values of the other `measures`."""
        return outputs.new_zeros((len(outputs), 0))

    def summarise(self, values: Tensor) -> Sequence[float]:
        """Each of the other `measures`, from what `measure` gave for all samples of the validation, float64 [N, k]: by
        default the means.
        """
        means: list[float] = values.mean(0).tolist()
        return means

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """How many samples of the batch are right, where that can be said."""
        return None

    def show(self, image: npt.NDArray[np.uint8], value: Tensor, *, predicted: bool) -> Visualization:
        """How a sample's target, or what the model gave for it (`predicted`), is shown beside or on its image, uint8
        [h, w, 3]: by default the image with the value's first numbers below it.
        """
        return Visualization(image, in_numbers(value))


def in_numbers(value: Tensor) -> str:
    """The first numbers of `value`, in words."""
    flat: list[Any] = value.flatten()[:NUMBERS_TOLD].tolist()
    return ", ".join(f"{each:.4g}" for each in flat) + (", …" if value.numel() > NUMBERS_TOLD else "")
