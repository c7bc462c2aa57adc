"""Reader for saved evaluations. It loads them into arrays, which makes sorting tens of thousands of samples fast."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from engine.contract.inference.evaluation import SAMPLES_FILE, ClassCurves, Curves, Evaluation
from engine.runs.evaluations import DamagedEvaluation, SavedEvaluation, read_evaluations
from engine.runs.folder import list_runs
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.sources.columns import Floats
from gui.titles import title_of
from gui.translation import tr

Numbers = npt.NDArray[np.int64]
Classes = tuple[tuple[int, ...], ...]

NO_CLASS = -1


@dataclass(frozen=True)
class SampleTable:
    """Arrays with the columns of `engine.contract.inference.evaluation.Samples`. Unknown numbers are NaN (float64).

    Only tasks with one class per sample have `true_class` and `predicted_class`. They contain `NO_CLASS` for samples
    without one.
    """

    paths: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    indices: tuple[int, ...] = ()
    losses: Floats | None = None
    correct: Floats | None = None
    confidence: Floats | None = None
    true: Classes | None = None
    predicted: Classes | None = None
    true_class: Numbers | None = None
    predicted_class: Numbers | None = None

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class OpenedEvaluation:
    """Evaluation with its samples and curves in memory. Its other files are read when they are needed."""

    saved: SavedEvaluation
    samples: SampleTable
    curves: Curves

    @property
    def evaluation(self) -> Evaluation:
        return self.saved.evaluation

    @property
    def run_folder(self) -> Path:
        """Absolute path of the folder of the evaluated run."""
        return self.saved.folder.absolute().parents[1]


def open_evaluation(saved: SavedEvaluation) -> OpenedEvaluation:
    """Read the samples and curves of an evaluation. Raises DamagedEvaluation."""
    return OpenedEvaluation(saved, read_samples(saved), saved.read_curves())


def read_samples(saved: SavedEvaluation) -> SampleTable:
    """Read the table of samples in an evaluation. Raises DamagedEvaluation.

    Columns are decoded one by one, so that the GUI thread can run in between.
    """
    file = saved.folder / SAMPLES_FILE
    try:
        raw = msgspec.msgpack.decode(read_file(file, MAX_RESULT_BYTES), type=dict[str, msgspec.Raw])
        columns: dict[str, Any] = {}
        for name, kind in _COLUMNS.items():
            columns[name] = msgspec.msgpack.decode(raw[name], type=kind) if name in raw else None
            time.sleep(0)  # let the GUI thread run
    except (OSError, *NOT_DECODED) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DamagedEvaluation(tr("{file} can't be read: {reason}").format(file=file, reason=reason)) from error
    count = len(columns["paths"] or ())
    if any(column is not None and len(column) != count for column in columns.values()):
        raise DamagedEvaluation(tr("{file} can't be read: its columns differ in length").format(file=file))
    for name in ("losses", "correct", "confidence"):
        columns[name] = None if columns[name] is None else np.array(columns[name], np.float64)
    # Without several classes per sample, arrays of class indices make filtering fast.
    has_single_class = all(_has_single_class(columns[name]) for name in ("true", "predicted"))
    return SampleTable(
        **{name: column for name, column in columns.items() if column is not None},
        true_class=_extract_class_indices(columns["true"]) if has_single_class else None,
        predicted_class=_extract_class_indices(columns["predicted"]) if has_single_class else None,
    )


_COLUMNS: dict[str, Any] = {
    "paths": tuple[str, ...],
    "splits": tuple[str, ...],
    "indices": tuple[int, ...],
    "losses": list[float | None] | None,
    "correct": list[float | None] | None,
    "confidence": list[float | None] | None,
    "true": Classes | None,
    "predicted": Classes | None,
}


def _has_single_class(classes: Classes | None) -> bool:
    """Return True if the classes are known, and no sample has several."""
    return classes is not None and all(len(indices) <= 1 for indices in classes)


def _extract_class_indices(classes: Classes) -> Numbers:
    """Return the only class of each sample, or `NO_CLASS` for samples without one."""
    return np.fromiter((indices[0] if indices else NO_CLASS for indices in classes), np.int64, len(classes))


@dataclass(frozen=True)
class ComparableEvaluation:
    """Evaluation that covers the same samples as another one, and the title of its run."""

    saved: SavedEvaluation
    title: str


def find_comparable_evaluations(evaluation: Evaluation) -> list[ComparableEvaluation]:
    """Find all other evaluations with the same split, dataset and task, newest first. Raises OSError."""
    found = [
        ComparableEvaluation(saved, title_of(run))
        for run in list_runs()
        for saved in read_evaluations(run.path)
        if _is_comparable(saved.evaluation, evaluation)
    ]
    return sorted(found, key=lambda other: other.saved.evaluation.date, reverse=True)


def _is_comparable(one: Evaluation, other: Evaluation) -> bool:
    """Return True if these are different evaluations of the same samples."""
    has_same_samples = (one.task, one.dataset, one.split) == (other.task, other.dataset, other.split)
    return has_same_samples and (one.run, one.id) != (other.run, other.id)


class Outcomes:
    """Confusion counts of a class at any probability threshold.

    `positive` and `negative` are the sorted float32 probabilities of the samples with and without the class.
    """

    def __init__(self, probabilities: Floats, has_class: npt.NDArray[np.bool_]) -> None:
        self.positive = np.sort(probabilities[has_class])
        self.negative = np.sort(probabilities[~has_class])

    def at(self, threshold: float) -> ConfusionCounts:
        """Return the counts if the class is predicted at probabilities of at least `threshold`."""
        false_negatives = int(np.searchsorted(self.positive, np.float32(threshold), side="left"))
        true_negatives = int(np.searchsorted(self.negative, np.float32(threshold), side="left"))
        return ConfusionCounts(
            true_positives=len(self.positive) - false_negatives,
            false_positives=len(self.negative) - true_negatives,
            false_negatives=false_negatives,
            true_negatives=true_negatives,
        )


class CurveCounts:
    """Confusion counts of a class at any score threshold, from the precision-recall curve of a detector."""

    def __init__(self, curve: ClassCurves) -> None:
        self._curve = curve
        self._rising_thresholds = np.array(curve.thresholds[::-1], np.float64)

    def at(self, threshold: float) -> ConfusionCounts:
        """Return the counts if detections with scores of at least `threshold` are accepted."""
        curve = self._curve
        accepted = len(self._rising_thresholds) - int(np.searchsorted(self._rising_thresholds, threshold, side="left"))
        point = accepted - 1  # of the curve, whose thresholds fall
        if point < 0:  # no detection has such a score
            return ConfusionCounts(0, 0, curve.positives, true_negatives=None)
        true_positives = round(curve.recall[point] * curve.positives)
        precision = curve.precision[point]
        false_positives = round(true_positives / precision) - true_positives if precision else None
        return ConfusionCounts(true_positives, false_positives, curve.positives - true_positives, true_negatives=None)


@dataclass(frozen=True)
class ConfusionCounts:
    """Confusion counts of a class, and ratios of them, which are None if their denominator is 0 or unknown.

    For detection, `true_negatives` is None, and `false_positives` is None (unknown) if there are no true positives.
    Precision and F1 score are then 0.
    """

    true_positives: int
    false_positives: int | None
    false_negatives: int
    true_negatives: int | None

    @property
    def precision(self) -> float | None:
        if self.false_positives is None:  # because there are no true positives
            return 0.0
        return _fraction(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float | None:
        return _fraction(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def false_positive_rate(self) -> float | None:
        if self.false_positives is None or self.true_negatives is None:
            return None
        return _fraction(self.false_positives, self.false_positives + self.true_negatives)

    @property
    def f1(self) -> float | None:
        if self.false_positives is None:  # because there are no true positives
            return 0.0
        twice_true = 2 * self.true_positives
        return _fraction(twice_true, twice_true + self.false_positives + self.false_negatives)


def read_outcomes(opened: OpenedEvaluation, curve: ClassCurves) -> Outcomes | CurveCounts:
    """Read the confusion counts for the class of `curve`. Raises DamagedEvaluation.

    Only the probabilities of this class are read. If none were saved, the points of the curve are used.
    """
    file, true, class_index = opened.saved.probabilities_file, opened.samples.true, curve.class_index
    if not file.exists():
        return CurveCounts(curve)
    try:
        table = np.load(file, mmap_mode="r")
        column = np.array(table[:, class_index], np.float32)
    except (OSError, ValueError, IndexError) as error:
        raise DamagedEvaluation(tr("{file} can't be read: {error}").format(file=file, error=error)) from error
    if true is None or len(true) != len(column):
        raise DamagedEvaluation(tr("{file} can't be read: it is not of these samples").format(file=file))
    has_class = np.fromiter((class_index in indices for indices in true), np.bool_, len(true))
    is_known = ~np.isnan(column)
    return Outcomes(column[is_known], has_class[is_known])


def count_confusion(samples: SampleTable, classes: int, threshold: float) -> Numbers | None:
    """Count samples by true class (row) and predicted class (column). Return None if samples may have several classes.

    The matrix is int64 [classes + 1, classes + 1], where `classes` is the number of classes. The last column counts
    samples without a prediction whose confidence reaches `threshold`.
    """
    true, predicted, confidence = samples.true_class, samples.predicted_class, samples.confidence
    if true is None or predicted is None or confidence is None:
        return None
    thresholded = np.where((confidence < threshold) | (predicted == NO_CLASS), classes, predicted)
    is_known = (true >= 0) & (true < classes) & (thresholded <= classes)
    row_length = classes + 1
    cells = true[is_known] * row_length + thresholded[is_known]  # index of each sample's cell in the flat matrix
    counts = np.bincount(cells, minlength=row_length * row_length)
    return counts.reshape(row_length, row_length).astype(np.int64)


def _fraction(count: int, total: int) -> float | None:
    """Return `count` as a fraction of `total`, or None if `total` is 0."""
    return count / total if total else None
