"""Interface for splits of samples that are not image files, such as point clouds or samples of a user-defined class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.data.datasets.images import UnreadableImage
from engine.data.randomness import RandomStreams

if TYPE_CHECKING:
    from engine.data.transforms.device_transforms import Statistics

Sample = tuple[Tensor, Tensor]
"""Sample: model input and target."""


class SampleSet(ABC):
    """Split of samples, each with an input and a target.

    All inputs of a split have the same shape and type, and so do all targets.

    Random choices for a sample should depend only on the job's seed, the epoch and the index of the sample, so that a
    resumed run sees the same samples. For validation they should not depend on the epoch, so that metrics of different
    epochs are comparable.
    """

    folder = ""
    """Folder of the dataset if the samples are files in it, else ""."""
    streams = RandomStreams(0)
    """Random streams for the run, assigned by the loader."""
    features: tuple[str, ...] = ()
    """Names of the optional inputs that each sample contains, such as the color of points."""
    label_values: tuple[int, ...] = ()
    """Value that labels each class in the dataset's files, or () if the files have no labels."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def path(self, index: int) -> str:
        """Return the name of the sample with this index, for messages to the user."""

    @abstractmethod
    def load(self, index: int, epoch: int) -> Sample:
        """Return a sample for the given epoch, on the CPU. Several threads may call this at the same time.

        Raises UnreadableImage for an unusable sample, and DatasetError if all samples have disappeared.
        """

    def with_features(self, features: tuple[str, ...]) -> SampleSet:
        """Return the same samples with `features` as their only optional inputs.

        The files must contain these inputs.
        """
        return self

    def for_evaluation(self, statistics: Statistics) -> SampleSet:
        """Return these samples for validation, normalized with the `statistics` of the training samples."""
        return self

    def identity(self) -> Iterator[bytes | memoryview]:
        """Yield bytes that identify this split by the names and order of its samples. Ranks compare a hash of them."""
        yield "\0".join(self.path(index) for index in range(len(self))).encode(errors="backslashreplace")

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the number of samples in each class.

        By default, this loads every sample and counts its integer targets.
        """
        counts = torch.zeros(classes, dtype=torch.int64)
        for index in range(len(self)):
            try:
                _, target = self.load(index, 0)  # as in epoch 0
            except UnreadableImage:
                continue  # the loader reports it
            if not target.is_floating_point():
                valid_classes = target[(target >= 0) & (target < classes)].long()
                counts += torch.bincount(valid_classes, minlength=classes)
        result: list[float] = counts.tolist()
        return result
