"""Samples that are no images of one size: point clouds, or what a user's own class gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine.data.datasets.images import UnreadableImage
from engine.data.randomness import RandomStreams

Sample = tuple[Tensor, Tensor]
"""An input as the model is given it, and its target."""


class SampleSet(ABC):
    """A split of samples, each an input and a target; the inputs are all of one shape and type, and so are the targets.

    Whatever is drawn at random for a sample should depend on the job's seed, the epoch and the sample's number alone,
    so that a run that goes on from a checkpoint sees what it would have seen; and where it is for validation, not on
    the epoch, so that its measures can be compared.
    """

    folder = ""
    """The dataset's folder, where the samples are files in it."""
    streams = RandomStreams(0)
    """The run's, set by whoever loads the samples."""

    @abstractmethod
    def __len__(self) -> int:
        """How many samples there are."""

    @abstractmethod
    def path(self, index: int) -> str:
        """The sample's name in messages."""

    @abstractmethod
    def load(self, index: int, epoch: int) -> Sample:
        """The sample on the CPU, as it is in `epoch`; called by several threads at once.

        Raises UnreadableImage for a sample that cannot be used, DatasetError where all are gone.
        """

    def identity(self) -> Iterator[bytes | memoryview]:
        """Bytes that identify this split, to be hashed and compared between ranks: the samples' names in their
        order."""
        yield "\0".join(self.path(index) for index in range(len(self))).encode(errors="backslashreplace")

    def class_counts(self, classes: int) -> Sequence[float]:
        """How often each class occurs in whatever it is that has one: here among all values of whole-numbered targets,
        for which every sample is loaded."""
        counts = torch.zeros(classes, dtype=torch.int64)
        for index in range(len(self)):
            try:
                _, target = self.load(index, 0)
            except UnreadableImage:
                continue  # the loader names it
            if not target.is_floating_point():
                there = target[(target >= 0) & (target < classes)].long()
                counts += torch.bincount(there, minlength=classes)
        found: list[float] = counts.tolist()
        return found
