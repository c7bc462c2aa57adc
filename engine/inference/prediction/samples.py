"""Sample sets for predictions: samples of user-defined tasks, and sets that record unreadable samples."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from msgspec import structs
from torch import Tensor

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.datasets.unlabeled_images import UnlabeledImages
from engine.data.splits import Labels
from engine.inference.trained_model import CannotLoad, TrainedModel
from engine.models.base import TaskError
from engine.tasks.base import Task


class RecordedImages(UnlabeledImages):
    """Images that record which of their files are unreadable.

    The image with index i has the index `numbers[i]` among all files of the request. `failed` maps the latter index of
    each unreadable file to the reason.
    """

    def __init__(self, files: Sequence[str], model: TrainedModel, numbers: Labels) -> None:
        super().__init__(files, model.preprocessing)
        self.failed: dict[int, str] = {}
        self._numbers = numbers

    def load(self, index: int, size: int, channels: int) -> Tensor:
        """Load an image. If it is unreadable, add the reason to `failed` and raise UnreadableImage."""
        try:
            return super().load(index, size, channels)
        except UnreadableImage as error:
            self.failed[int(self._numbers[index])] = error.reason
            raise


class RecordedSamples(SampleSet):
    """Samples with the indices `numbers` in another sample set, which record the unreadable ones.

    `failed` maps the index in the other set of each unreadable sample to the reason.
    """

    def __init__(self, samples: SampleSet, numbers: Labels) -> None:
        self._samples, self._numbers = samples, numbers
        self.folder = samples.folder
        self.failed: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def path(self, index: int) -> str:
        return self._samples.path(int(self._numbers[index]))

    def load(self, index: int, epoch: int) -> Sample:
        """Load a sample as in epoch 0. If it is unreadable, add the reason to `failed` and raise UnreadableImage."""
        try:
            return self._samples.load(int(self._numbers[index]), 0)
        except UnreadableImage as error:
            self.failed[int(self._numbers[index])] = error.reason
            raise


def open_folder_samples(task: Task, job: Job, folder: str) -> SampleSet:
    """Open a folder with a user-defined task, and return its validation samples followed by its training samples.

    Raises CannotLoad.
    """
    try:
        splits = task.open_splits(job.with_fields(dataset=folder))
    except TaskError as error:
        raise CannotLoad(structs.replace(error.problem, field="paths")) from error
    except DatasetError as error:
        raise CannotLoad(*(structs.replace(problem, field="paths") for problem in error.problems)) from error
    if not isinstance(splits.val, SampleSet) or not isinstance(splits.train, SampleSet):
        raise CannotLoad(Problem("paths", "The folder is of another kind than the training's.", "Choose one as that."))
    return _JoinedSamples((splits.val, splits.train))


class _JoinedSamples(SampleSet):
    """Sample set with the samples of several splits, one split after the other."""

    def __init__(self, splits: tuple[SampleSet, ...]) -> None:
        self._splits = splits
        self._ends = list(accumulate(map(len, splits)))
        self.folder = splits[0].folder

    def __len__(self) -> int:
        return self._ends[-1]

    def path(self, index: int) -> str:
        split, row = self._locate(index)
        return split.path(row)

    def load(self, index: int, epoch: int) -> Sample:
        split, row = self._locate(index)
        return split.load(row, epoch)

    def _locate(self, index: int) -> tuple[SampleSet, int]:
        """Return the split that contains a sample, and the index of the sample in it."""
        number = bisect_right(self._ends, index)
        return self._splits[number], index - (self._ends[number - 1] if number else 0)
