"""Samples other than images of one size: point clouds, or samples of a user's own class."""

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
"""Input of the model and its target."""


class SampleSet(ABC):
    """Split of samples, each an input and a target; all inputs have one shape and type, and so have all targets.

    Random draws for a sample should depend on the job's seed, the epoch and the number of the sample only, so that a
    resumed run sees the same samples; for validation they should not depend on the epoch, so that metrics are
    comparable.
    """

    folder = ""
    """Folder of the dataset if the samples are files in it."""
    streams = RandomStreams(0)
    """Random streams of the run, set by the loader."""
    features: tuple[str, ...] = ()
    """Names of the inputs beyond those that all such samples have."""
    label_values: tuple[int, ...] = ()
    """Label of each class in the files; empty if they have none."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def path(self, index: int) -> str:
        """Return the sample's name in messages."""

    @abstractmethod
    def load(self, index: int, epoch: int) -> Sample:
        """Return the sample on the CPU as it is in `epoch`; several threads call it at once.

        Raises UnreadableImage for an unusable sample, and DatasetError if all are gone.
        """

    def with_features(self, features: tuple[str, ...]) -> SampleSet:
        """Return the same samples with these features, out of those that they have."""
        return self

    def for_evaluation(self, statistics: Statistics) -> SampleSet:
        """Return these samples as a validation sees them, normalized by the `statistics` of the training."""
        return self

    def identity(self) -> Iterator[bytes | memoryview]:
        """Yield bytes that identify this split by its samples' names in order, for comparison between ranks."""
        yield "\0".join(self.path(index) for index in range(len(self))).encode(errors="backslashreplace")

    def class_counts(self, classes: int) -> Sequence[float]:
        """Return the frequency of each class, by default among integer targets, which loads every sample."""
        counts = torch.zeros(classes, dtype=torch.int64)
        for index in range(len(self)):
            try:
                _, target = self.load(index, 0)
            except UnreadableImage:
                continue  # the loader names it
            if not target.is_floating_point():
                known = target[(target >= 0) & (target < classes)].long()
                counts += torch.bincount(known, minlength=classes)
        found: list[float] = counts.tolist()
        return found
