"""Collect the samples in evaluations, with their predictions and files, for a review."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.contract.inference.review import ReviewedSample
from engine.contract.problems import Problem
from engine.data.datasets.images import ImageSet
from engine.data.datasets.samples import SampleSet
from engine.data.splits import printable
from engine.inference.evaluation.dataset import EvaluationData, open_data
from engine.inference.trained_model import CannotLoad, read_training
from engine.runs.evaluations import DamagedEvaluation, SavedEvaluation, read_evaluation, read_evaluations
from engine.runs.folder import RunFolder
from engine.system.format import counted


@dataclass
class ReviewedData:
    """Samples of one or more evaluations, concatenated.

    Attributes:
        evaluations: The evaluations.
        samples: All n samples with their predictions and files.
        true: Indices of the true classes of each sample, or None for tasks without classes.
        held_out: True for each sample that the model was not trained on, [n].
        probabilities: Probabilities of the classes, [n, C], or None for tasks without classes.
        data: Dataset of the first evaluation whose dataset can be opened, or None if there is none.
        missing: Explanations, for the user, of what could not be reviewed.
    """

    evaluations: list[SavedEvaluation]
    samples: list[ReviewedSample]
    true: list[tuple[int, ...]] | None
    held_out: npt.NDArray[np.bool_]
    probabilities: npt.NDArray[np.float32] | None
    data: EvaluationData | None
    missing: list[str]


def collect_samples(run: RunFolder, folders: Sequence[str]) -> ReviewedData:
    """Collect the samples of the evaluations in `folders`, or of the run's latest evaluation if there are no folders.

    Raises CannotLoad.
    """
    saved = _read_evaluations(run, folders)
    first = saved[0].evaluation
    for evaluated in saved[1:]:
        if evaluated.evaluation.classes != first.classes or evaluated.evaluation.task != first.task:
            message = f"{evaluated.evaluation.id} is of other classes than {first.id}."
            raise CannotLoad(Problem("evaluations", message, "Review evaluations of one dataset."))
    samples: list[ReviewedSample] = []
    true: list[tuple[int, ...]] = []
    held_out: list[bool] = []
    probabilities = []
    missing: list[str] = []
    data: EvaluationData | None = None
    for evaluated in saved:
        data_of_evaluation = _open_samples(evaluated, missing)
        data = data or data_of_evaluation
        results = evaluated.read_samples()
        is_training_data = os.path.realpath(evaluated.evaluation.dataset) == _get_dataset(evaluated)
        held_out += [not is_training_data or split != "train" for split in results.splits]
        samples += _list_reviewed(evaluated, data_of_evaluation, missing)
        true += results.true or ()
        if evaluated.probabilities_file.exists():
            probabilities.append(np.load(evaluated.probabilities_file))
    return ReviewedData(
        saved,
        samples,
        true if len(true) == len(samples) else None,
        np.array(held_out, bool),
        np.concatenate(probabilities) if len(probabilities) == len(saved) else None,
        data,
        missing,
    )


def _read_evaluations(run: RunFolder, folders: Sequence[str]) -> list[SavedEvaluation]:
    """Read the evaluations in `folders`, or the run's latest one if there are no folders. Raises CannotLoad."""
    try:
        saved = [read_evaluation(Path(folder)) for folder in folders] or read_evaluations(run.path)[:1]
    except DamagedEvaluation as error:
        raise CannotLoad(Problem("evaluations", f"{error}.", "Choose another evaluation.")) from error
    if not saved:
        message = f"{run.run_id} has not been evaluated."
        raise CannotLoad(Problem("evaluations", message, f"Run `footplate evaluate {run.run_id}` first."))
    return saved


def _get_run(saved: SavedEvaluation) -> RunFolder:
    """Return the folder of the run whose model was evaluated."""
    return RunFolder(saved.folder.parent.parent)


def _get_dataset(saved: SavedEvaluation) -> str:
    """Return the real path of the dataset that the evaluated run was trained on, or "" if its job can't be read."""
    job = _get_run(saved).job()
    return os.path.realpath(os.path.expanduser(job.data.dataset)) if job is not None else ""


def _open_samples(saved: SavedEvaluation, missing: list[str]) -> EvaluationData | None:
    """Open the dataset of an evaluation. If that fails, add the reason to `missing` and return None."""
    evaluation = saved.evaluation
    try:
        return open_data(read_training(_get_run(saved)), evaluation.dataset, evaluation.split)
    except CannotLoad as error:
        missing.append(f"The dataset of {evaluation.id} can't be opened, so no sample has a file: {error}")
        return None


def _list_reviewed(saved: SavedEvaluation, data: EvaluationData | None, missing: list[str]) -> list[ReviewedSample]:
    """Return the samples of an evaluation with their files.

    If the dataset has changed, the number of affected samples is reported in `missing`.
    """
    classes, columns = saved.evaluation.classes, saved.read_samples()
    samples_of_split = dict(data.splits) if data is not None else {}
    reviewed = []
    changed_count = 0
    for row, (path, split, index) in enumerate(zip(columns.paths, columns.splits, columns.indices, strict=True)):
        file = find_displayed_file(samples_of_split.get(split), index, path)
        changed_count += file is None
        reviewed.append(
            ReviewedSample(
                path=path,
                file=file or "",
                split=split,
                true=_get_class_names(classes, columns.true[row]) if columns.true is not None else None,
                predicted=_get_class_names(classes, columns.predicted[row]) if columns.predicted is not None else None,
                loss=columns.losses[row] if columns.losses is not None else None,
                correct=columns.correct[row] if columns.correct is not None else None,
                confidence=columns.confidence[row] if columns.confidence is not None else None,
            )
        )
    if changed_count and data is not None:
        change = "is no longer where it was" if changed_count == 1 else "are no longer where they were"
        missing.append(f"{counted(changed_count, 'sample')} of {saved.evaluation.id} {change} in the dataset.")
    return reviewed


def find_displayed_file(samples: ImageSet | SampleSet | None, index: int, path: str) -> str | None:
    """Return the path of a sample's file for display.

    Return "" if the sample has no file. Return None without `samples`, or if the sample at this index has another path
    than `path`, which the evaluation has recorded. The dataset has then changed.
    """
    if samples is None or index >= len(samples) or samples.path(index) != path:
        return None
    files: Sequence[str] = getattr(samples, "files", ())
    return printable(files[index]) if len(files) else ""


def _get_class_names(classes: Sequence[str], numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(classes[number] for number in numbers)
