"""Samples that a user-defined task makes of a folder."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from msgspec import structs

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data.datasets.images import DatasetError
from engine.data.datasets.samples import Sample, SampleSet
from engine.inference.trained_model import CannotLoad
from engine.models.base import TaskError
from engine.tasks.base import Task


def own_samples(task: Task, job: Job, folder: str) -> SampleSet:
    """Return the validation and training samples in sequence. Raises CannotLoad."""
    try:
        splits = task.splits(job.with_fields(dataset=folder))
    except TaskError as error:
        raise CannotLoad(structs.replace(error.problem, field="paths")) from error
    except DatasetError as error:
        raise CannotLoad(*(structs.replace(problem, field="paths") for problem in error.problems)) from error
    if not isinstance(splits.val, SampleSet) or not isinstance(splits.train, SampleSet):
        raise CannotLoad(Problem("paths", "The folder is of another kind than the training's.", "Choose one as that."))
    return _Joined((splits.val, splits.train))


class _Joined(SampleSet):
    """Samples of several splits in sequence."""

    def __init__(self, splits: tuple[SampleSet, ...]) -> None:
        self._splits = splits
        self._ends = list(accumulate(map(len, splits)))
        self.folder = splits[0].folder

    def __len__(self) -> int:
        return self._ends[-1]

    def path(self, index: int) -> str:
        split, row = self._at(index)
        return split.path(row)

    def load(self, index: int, epoch: int) -> Sample:
        split, row = self._at(index)
        return split.load(row, epoch)

    def _at(self, index: int) -> tuple[SampleSet, int]:
        number = bisect_right(self._ends, index)
        return self._splits[number], index - (self._ends[number - 1] if number else 0)
