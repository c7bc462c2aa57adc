"""Sample sets that record which samples can't be read, since loaders skip these."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from engine.data.datasets.images import UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.datasets.unlabeled_images import UnlabeledImages
from engine.data.splits import Labels
from engine.inference.trained_model import TrainedModel


class NotingImages(UnlabeledImages):
    """Images that record the reason for each unreadable one in `failed`, by its overall number."""

    def __init__(self, files: Sequence[str], model: TrainedModel, numbers: Labels) -> None:
        super().__init__(files, model.preprocessing)
        self.failed: dict[int, str] = {}
        self._rows = numbers

    def load(self, index: int, size: int, channels: int) -> Tensor:
        try:
            return super().load(index, size, channels)
        except UnreadableImage as error:
            self.failed[int(self._rows[index])] = error.reason
            raise


class ChosenSamples(SampleSet):
    """Subset of a split that records unreadable samples like `NotingImages`."""

    def __init__(self, samples: SampleSet, numbers: Labels) -> None:
        self._samples, self._rows = samples, numbers
        self.folder = samples.folder
        self.failed: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def path(self, index: int) -> str:
        return self._samples.path(int(self._rows[index]))

    def load(self, index: int, epoch: int) -> Sample:
        try:
            return self._samples.load(int(self._rows[index]), 0)
        except UnreadableImage as error:
            self.failed[int(self._rows[index])] = error.reason
            raise
