"""The samples of evaluations, put together with what their models made of them, and with their files."""

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
from engine.inference.trained_model import CannotLoad, learnt
from engine.runs.evaluations import DamagedEvaluation, KeptEvaluation, evaluations_of, read_evaluation
from engine.runs.folder import RunFolder


@dataclass
class Reviewed:
    """The samples of `evaluations`, one after another. `held_out` [n] says of which the model had not seen;
    `probabilities` [n, C] are None where the task has no classes of samples. `data` is the dataset of the first, None
    where it can't be opened, of which `missing` tells.
    """

    evaluations: list[KeptEvaluation]
    samples: list[ReviewedSample]
    true: list[tuple[int, ...]] | None
    held_out: npt.NDArray[np.bool_]
    probabilities: npt.NDArray[np.float32] | None
    data: EvaluationData | None
    missing: list[str]


def collect(run: RunFolder, folders: Sequence[str]) -> Reviewed:
    """The samples of the evaluations in `folders`, or of the run's newest. Raises CannotLoad."""
    kept = _opened(run, folders)
    first = kept[0].evaluation
    for each in kept[1:]:
        if each.evaluation.classes != first.classes or each.evaluation.task != first.task:
            message = f"{each.evaluation.id} is of other classes than {first.id}."
            raise CannotLoad(Problem("evaluations", message, "Review evaluations of one dataset."))
    samples: list[ReviewedSample] = []
    true: list[tuple[int, ...]] = []
    held_out: list[bool] = []
    probabilities = []
    missing: list[str] = []
    data: EvaluationData | None = None
    for each in kept:
        opened = _data(each, missing)
        data = data or opened
        of_samples = each.samples()
        own = os.path.realpath(each.evaluation.dataset) == _dataset_of(each)
        held_out += [not own or split != "train" for split in of_samples.splits]
        samples += _reviewed(each, opened, missing)
        true += of_samples.true or ()
        if each.probabilities_file.exists():
            probabilities.append(np.load(each.probabilities_file))
    return Reviewed(
        kept,
        samples,
        true if len(true) == len(samples) else None,
        np.array(held_out, bool),
        np.concatenate(probabilities) if len(probabilities) == len(kept) else None,
        data,
        missing,
    )


def _opened(run: RunFolder, folders: Sequence[str]) -> list[KeptEvaluation]:
    try:
        kept = [read_evaluation(Path(folder)) for folder in folders] or evaluations_of(run.path)[:1]
    except DamagedEvaluation as error:
        raise CannotLoad(Problem("evaluations", f"{error}.", "Choose another evaluation.")) from error
    if not kept:
        message = f"{run.run_id} has not been evaluated."
        raise CannotLoad(Problem("evaluations", message, f"Run `footplate evaluate {run.run_id}` first."))
    return kept


def _run_of(kept: KeptEvaluation) -> RunFolder:
    return RunFolder(kept.folder.parent.parent)


def _dataset_of(kept: KeptEvaluation) -> str:
    """The folder that the evaluation's run was trained on, resolved."""
    job = _run_of(kept).job()
    return os.path.realpath(os.path.expanduser(job.data.dataset)) if job is not None else ""


def _data(kept: KeptEvaluation, missing: list[str]) -> EvaluationData | None:
    """The samples themselves; where they can't be opened that is noted."""
    evaluation = kept.evaluation
    try:
        return open_data(learnt(_run_of(kept)), evaluation.dataset, evaluation.split)
    except CannotLoad as error:
        missing.append(f"The dataset of {evaluation.id} can't be opened, so no sample has a file: {error}")
        return None


def _reviewed(kept: KeptEvaluation, data: EvaluationData | None, missing: list[str]) -> list[ReviewedSample]:
    classes, columns = kept.evaluation.classes, kept.samples()
    parts = dict(data.parts) if data is not None else {}
    found = []
    changed = 0
    for row, (path, split, index) in enumerate(zip(columns.paths, columns.splits, columns.indices, strict=True)):
        file = file_of(parts.get(split), index, path)
        changed += file is None
        found.append(
            ReviewedSample(
                path=path,
                file=file or "",
                split=split,
                true=_names(classes, columns.true[row]) if columns.true is not None else None,
                predicted=_names(classes, columns.predicted[row]) if columns.predicted is not None else None,
                loss=columns.losses[row] if columns.losses is not None else None,
                correct=columns.correct[row] if columns.correct is not None else None,
                confidence=columns.confidence[row] if columns.confidence is not None else None,
            )
        )
    if changed and data is not None:
        missing.append(f"{changed:,} samples of {kept.evaluation.id} are no longer where they were in the dataset.")
    return found


def file_of(samples: ImageSet | SampleSet | None, index: int, path: str) -> str | None:
    """The path of a sample's file as people can read it, "" where it has none of its own; None where the dataset has
    another sample there now.
    """
    if samples is None or index >= len(samples) or samples.path(index) != path:
        return None
    files: Sequence[str] = getattr(samples, "files", ())
    return printable(files[index]) if len(files) else ""


def _names(classes: Sequence[str], numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(classes[number] for number in numbers)
