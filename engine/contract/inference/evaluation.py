"""Evaluation of a model.

An evaluation is a folder, `<run>/evaluations/<id>/`:

evaluation.json     results (`Evaluation`)
samples.msgpack     results for each sample (`Samples`)
curves.msgpack      precision-recall and ROC curves, if the task has any (`Curves`)
resamples.msgpack   metrics of each bootstrap resample, for comparisons (`Resamples`)
probabilities.npy   for labels: float32 [samples, classes], a row for each of `Samples`, suitable for memory mapping

The folder appears atomically. `engine.runs.evaluations` lists and reads it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.catalogue import Measure
from engine.contract.inference.messages import InferenceRequest

EvaluationSplit = Literal["val", "test", "train", "all"]
SPLITS: tuple[EvaluationSplit, ...] = ("val", "test", "train", "all")

EVALUATION_FILE = "evaluation.json"
SAMPLES_FILE = "samples.msgpack"
CURVES_FILE = "curves.msgpack"
RESAMPLES_FILE = "resamples.msgpack"
PROBABILITIES_FILE = "probabilities.npy"


class EvaluateRequest(InferenceRequest, tag="evaluate", frozen=True, kw_only=True):
    """Request to evaluate the model on a `split` of the folder `dataset`, or of the run's dataset if it is "".

    Without a split, the validation split of the run's dataset is used. For another folder, the first of "test", "val"
    and "all" that exists is used. The samples of a folder without splits are "all". The answer is the path of an
    `Evaluation`.
    """

    dataset: str = ""
    split: EvaluationSplit | None = None


class SavedResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class for saved results. Unknown fields, which a later version may add, are ignored."""


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """Value with the 95% interval from a bootstrap over the samples (Efron 1979).

    `low` and `high` are the 2.5th and 97.5th percentile over resamples of the same size, taken with replacement. They
    are None if there is no interval.
    """

    value: float
    low: float | None = None
    high: float | None = None


class SkippedSample(SavedResult, frozen=True):
    """File that could not be read for an evaluation, with the reason. Both texts are printable."""

    path: str
    reason: str


class ClassMapping(SavedResult, frozen=True):
    """Mapping from the classes of a dataset folder to those of the evaluated model, by name.

    Attributes:
        missing: Classes of the model that do not exist in the folder.
        unknown: Classes of the folder that the model does not know.
        ignored: Number of images, labels or boxes of unknown classes, which are excluded. None for pixels, points and
            outlines, which are not counted.
    """

    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    ignored: int | None = 0


class ReliabilityBin(SavedResult, frozen=True):
    """Predictions with a confidence above `low` and up to `high`.

    `confidence` is their mean confidence and `accuracy` the fraction of correct ones. Both are None for an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float | None = None
    accuracy: float | None = None


class Calibration(SavedResult, frozen=True):
    """Expected calibration error (Guo et al. 2017, section 2) over 15 bins, and the effect of temperature scaling.

    `temperature` divides the logits (section 4.2) and is fitted on every second sample. `ece_before`, `ece_after`,
    `loss_before` and `loss_after` are the calibration error and the negative log-likelihood on the other samples,
    without and with temperature. They are None if there are too few samples. For multi-label tasks, every label of a
    sample is a prediction.
    """

    ece: Interval
    bins: tuple[ReliabilityBin, ...]
    temperature: float | None = None
    ece_before: float | None = None
    ece_after: float | None = None
    loss_before: float | None = None
    loss_after: float | None = None


class ThresholdRow(SavedResult, frozen=True):
    """Predictions with a confidence of at least `threshold`. Undefined values are None.

    Attributes:
        share: Fraction of all predictions.
        precision: Fraction of these predictions that are correct.
        recall: Fraction of all targets that are found.
    """

    threshold: float
    share: float
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None


ErrorKind = Literal["classification", "localization", "both", "duplicate", "background", "missed"]
SizeName = Literal["small", "medium", "large"]


class BoxErrors(SavedResult, frozen=True):
    """One kind of detection error after TIDE (Bolya et al. 2020, section 2.2).

    `ap_loss` is the gain in AP50, from 0 to 1, if all errors of this kind were corrected.
    """

    kind: ErrorKind
    count: int
    ap_loss: float


class SizePrecision(SavedResult, frozen=True):
    """Average precision for objects of one size, by COCO's limits for the area in pixels of the original image.

    "small" is up to 32², "medium" up to 96², "large" above. `objects` counts them. The values are None if there are
    none.
    """

    size: SizeName
    objects: int
    ap: Interval | None = None
    ap50: Interval | None = None


class Evaluation(SavedResult, frozen=True):
    """Results of a model on a split of a dataset. Fields that don't apply to the task are None or empty.

    Attributes:
        date: Time in UTC, as in 2026-11-24T13:33:49Z.
        run: Id of the run.
        checkpoint: Name of the checkpoint file.
        sha256: Hash of the checkpoint file.
        dataset: Absolute path of the folder.
        samples: Number of evaluated samples.
        entries: Descriptions of the metrics, in order of display.
        measures: Values of the metrics by id.
        per_class: Values for each class, by title, with None for a class without a value.
        confusion: For each true class, the number of predictions of each class.
        resamples: Number of bootstrap resamples used for the intervals.
    """

    id: str
    date: str
    run: str
    task: str
    checkpoint: str
    sha256: str
    dataset: str
    split: EvaluationSplit
    classes: tuple[str, ...]
    samples: int
    skipped: tuple[SkippedSample, ...] = ()
    mapping: ClassMapping = ClassMapping()
    entries: tuple[Measure, ...] = ()
    measures: dict[str, Interval] = {}
    per_class: dict[str, tuple[Interval | None, ...]] = {}
    confusion: tuple[tuple[int, ...], ...] = ()
    resamples: int = 0
    calibration: Calibration | None = None
    thresholds: tuple[ThresholdRow, ...] = ()
    box_errors: tuple[BoxErrors, ...] = ()
    sizes: tuple[SizePrecision, ...] = ()
    warnings: tuple[str, ...] = ()


class Samples(SavedResult, frozen=True):
    """Results for each sample, in columns with one entry per sample. Columns that the task doesn't have are None.

    Attributes:
        paths: Printable paths relative to the dataset folder, as given by the split's `path(index)`.
        splits: Split of the folder that contains the sample.
        indices: Index of the sample in that split, so that `split.files[index]` is its file.
        losses: Loss of each sample without class weights. None for detectors.
        correct: Score from 0 to 1. For classification it is 1 or 0, for labels the intersection over union of true and
            predicted labels, for pixels or points the fraction with the right class, and for objects the F1 of
            detections with a score of at least 0.5 at an IoU of 0.5, or 1 if there is neither object nor detection.
        true: Indices of the true class, or of all true labels in ascending order, or of each object's class.
        predicted: Indices of the predicted class, or of all predicted labels in ascending order, or of the class of
            each detection with a score of at least 0.5, in descending order of scores.
        confidence: Probability of the predicted class, or of the least certain label (0.5 or more), or the mean score
            of the detections (0 without detections).
    """

    paths: tuple[str, ...]
    splits: tuple[Literal["train", "val", "test"], ...]
    indices: tuple[int, ...]
    losses: tuple[float, ...] | None = None
    correct: tuple[float, ...] | None = None
    true: tuple[tuple[int, ...], ...] | None = None
    predicted: tuple[tuple[int, ...], ...] | None = None
    confidence: tuple[float, ...] | None = None


class ClassCurves(SavedResult, frozen=True):
    """Curves for one class against the rest, thinned to at most 200 points. Undefined values are None or empty.

    `precision` and `recall` are in descending order of thresholds. `average_precision` is computed over all points as
    in scikit-learn. The curve of `true_positive_rate` over `false_positive_rate` has the area `auc`. `best_threshold`
    yields the highest F1, `best_f1`.
    """

    class_index: int
    positives: int
    recall: tuple[float, ...] = ()
    precision: tuple[float, ...] = ()
    thresholds: tuple[float, ...] = ()
    average_precision: Interval | None = None
    false_positive_rate: tuple[float, ...] = ()
    true_positive_rate: tuple[float, ...] = ()
    auc: Interval | None = None
    best_threshold: float | None = None
    best_f1: float | None = None


class Curves(SavedResult, frozen=True):
    """Precision-recall and ROC curves of an evaluation, in the order of the classes."""

    classes: tuple[ClassCurves, ...] = ()


class Resamples(SavedResult, frozen=True):
    """Values of each metric in each bootstrap resample, or None if undefined.

    The nth resample consists of the same samples in every evaluation with the same number of samples, so that
    differences are paired.
    """

    measures: dict[str, tuple[float | None, ...]] = {}


class Difference(SavedResult, frozen=True):
    """Difference of a metric between two evaluations of the same samples: second minus first.

    The interval is from a paired bootstrap.
    """

    entry: Measure
    first: float
    second: float
    difference: Interval


class McNemar(SavedResult, frozen=True):
    """McNemar's exact test (1947) for equal error rates of two classifiers.

    `only_first` and `only_second` count samples that only one of them predicts correctly. `p` is two-sided.
    """

    only_first: int
    only_second: int
    p: float


class Comparison(SavedResult, frozen=True):
    """Comparison of two evaluations of the same split of the same folder.

    `samples` counts the common samples. `only_first` and `only_second` are the paths of samples that only one
    evaluation predicts correctly. These two and `mcnemar` are None for tasks without a binary result per sample.
    """

    first: Evaluation
    second: Evaluation
    samples: int
    differences: tuple[Difference, ...] = ()
    mcnemar: McNemar | None = None
    only_first: tuple[str, ...] | None = None
    only_second: tuple[str, ...] | None = None
