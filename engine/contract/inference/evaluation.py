"""How a model is evaluated, and what is kept of it.

An evaluation is a folder, `<run>/evaluations/<id>/`:

evaluation.json     what came of it (`Evaluation`)
samples.msgpack     how the model did on each sample (`Samples`)
curves.msgpack      precision-recall and ROC curves, where the task has any (`Curves`)
resamples.msgpack   the measures of each bootstrap resample, by which two evaluations are compared (`Resamples`)
probabilities.npy   of labels: float32 [samples, classes], a row for each of `Samples`, fit to be mapped into memory

The folder appears as a whole or not at all; `engine.runs.evaluations` lists and reads it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.contract.catalogue import Measure
from engine.contract.inference.messages import Order

EvaluationSplit = Literal["val", "test", "train", "all"]
SPLITS: tuple[EvaluationSplit, ...] = ("val", "test", "train", "all")

EVALUATION_FILE = "evaluation.json"
SAMPLES_FILE = "samples.msgpack"
CURVES_FILE = "curves.msgpack"
RESAMPLES_FILE = "resamples.msgpack"
PROBABILITIES_FILE = "probabilities.npy"


class EvaluateOrder(Order, tag="evaluate", frozen=True, kw_only=True):
    """Measures the model on a `split` of the folder `dataset`, "" for the run's own.

    None leaves the split open: validation for the run's own dataset; for another folder test where it has one, else
    val where it has one, else all of it. A folder that is not divided is "all". The path of an `Evaluation` is the
    answer.
    """

    dataset: str = ""
    split: EvaluationSplit | None = None


class _Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields that a later version adds are passed over by this one."""


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """A value with the 95 % interval of a bootstrap over the samples: the 2.5th and 97.5th percentile of what
    resamples of the same size, drawn with replacement, give (Efron 1979). `low` and `high` are None where there is no
    interval.
    """

    value: float
    low: float | None = None
    high: float | None = None


class Skipped(_Kept, frozen=True):
    """A file that could not be read, and why; both are fit to print."""

    path: str
    reason: str


class ClassMapping(_Kept, frozen=True):
    """How the classes of the folder, by name, are those of the model.

    `missing` are classes of the model that the folder does not name, `unknown` those of the folder that the model
    does not know, and `ignored` how many images, labels or boxes of these were left out of the measures; None of
    pixels, points and outlines, which are left out uncounted.
    """

    missing: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    ignored: int | None = 0


class ReliabilityBin(_Kept, frozen=True):
    """The predictions with a confidence above `low` and up to `high`: how many, their mean confidence, and the share
    of them that is right. Both are None of an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float | None = None
    accuracy: float | None = None


class Calibration(_Kept, frozen=True):
    """How far confidences can be believed: the expected calibration error over 15 bins (Guo et al. 2017, section 2).

    `temperature` is what to divide logits by (section 4.2), fitted on every second sample; `ece_before`, `ece_after`,
    `loss_before` and `loss_after` are the expected calibration error and the negative log-likelihood of the other
    samples without and with it. These are None where there are too few samples. For labels that do not exclude each
    other every label of a sample is a prediction.
    """

    ece: Interval
    bins: tuple[ReliabilityBin, ...]
    temperature: float | None = None
    ece_before: float | None = None
    ece_after: float | None = None
    loss_before: float | None = None
    loss_after: float | None = None


class ThresholdRow(_Kept, frozen=True):
    """What remains when only predictions with a confidence of at least `threshold` count: the `share` of all
    predictions, how many of the remaining are right (`precision`), and how many of all there are to be found are
    found (`recall`). None of nothing.
    """

    threshold: float
    share: float
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None


ErrorKind = Literal["classification", "localisation", "both", "duplicate", "background", "missed"]
SizeName = Literal["small", "medium", "large"]


class BoxErrors(_Kept, frozen=True):
    """One kind of errors of a detector after TIDE (Bolya et al. 2020, section 2.2): how many there are, and by how
    much AP50 would rise if they were all mended (`ap_loss`, from 0 to 1).
    """

    kind: ErrorKind
    count: int
    ap_loss: float


class SizePrecision(_Kept, frozen=True):
    """Average precision of objects of one size as COCO divides them, by their area in pixels of the image as it is on
    disk: "small" up to 32², "medium" up to 96², "large" above. `objects` counts them; the values are None where there
    are none.
    """

    size: SizeName
    objects: int
    ap: Interval | None = None
    ap50: Interval | None = None


class Evaluation(_Kept, frozen=True):
    """What a model is worth on a split of a dataset. What a task does not have is None, or empty.

    `date` is in UTC, as 2026-11-24T13:33:49Z. `run` is the run's id, `checkpoint` the file's name and `sha256` that
    of its content. `dataset` is the folder's absolute path, `samples` how many were evaluated. `classes` are the
    model's.

    `entries` describes the measures, in the order in which to show them; `measures` has their values by id.
    `per_class` has by title a value for each of `classes`, None for one that it says nothing of. `confusion` has a
    row for each true class of how often each was predicted. `resamples` is of how many bootstrap resamples the
    intervals are.
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
    skipped: tuple[Skipped, ...] = ()
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


class Samples(_Kept, frozen=True):
    """How the model did on each sample, a column a field, each with an entry for each sample in the order of the
    split; a column that the task does not have is None.

    `paths` are as the split's `path(index)` gives them: relative to the dataset's folder and fit to print. `splits`
    says of which split of the folder a sample is, and `indices` which of that split's samples it is, from 0 on, so
    that `split.files[index]` is its file. `losses` are the task's loss of each sample, without weights of classes;
    detectors have none. `correct` is from 0 to 1: 1 or 0 for a class; for labels the share of them that is right
    (intersection over union of predicted and true); for pixels and points the share whose class is right; for objects
    the F1 of detections with a score of at least 0.5 at an IoU of 0.5, 1 where there is neither object nor detection.

    `true` and `predicted` have the indices of classes. Image classification: of one each, and `confidence` is the
    probability of the predicted class. Labels: of those that a sample has, in rising order, and `confidence` is that
    of its least certain decision, from 0.5 on. Objects: of each object, and of each detection with a score of at
    least 0.5 from the highest score down, and `confidence` is the mean of these scores, 0 where there are none. Else
    they are None.
    """

    paths: tuple[str, ...]
    splits: tuple[Literal["train", "val", "test"], ...]
    indices: tuple[int, ...]
    losses: tuple[float, ...] | None = None
    correct: tuple[float, ...] | None = None
    true: tuple[tuple[int, ...], ...] | None = None
    predicted: tuple[tuple[int, ...], ...] | None = None
    confidence: tuple[float, ...] | None = None


class ClassCurves(_Kept, frozen=True):
    """The curves of one class against the rest, thinned to at most 200 points.

    `precision` by `recall`, from high thresholds to low, with `average_precision` (scikit-learn's, of all points);
    `true_positive_rate` by `false_positive_rate` with its area `auc`. `best_threshold` is that of the highest F1,
    `best_f1`. None where a class has no samples, or no others.
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


class Curves(_Kept, frozen=True):
    """The curves of each class, in the order of the classes."""

    classes: tuple[ClassCurves, ...] = ()


class Resamples(_Kept, frozen=True):
    """What each bootstrap resample gives for each measure, by id, None where it gives nothing. The nth resample draws
    the same samples in every evaluation of as many samples, so that differences of two evaluations are paired.
    """

    measures: dict[str, tuple[float | None, ...]] = {}


class Difference(_Kept, frozen=True):
    """A measure of two evaluations of the same samples: `difference` is the second less the first, with its paired
    bootstrap interval, where there is one.
    """

    entry: Measure
    first: float
    second: float
    difference: Interval


class McNemar(_Kept, frozen=True):
    """McNemar's exact test (1947) of whether two classifiers err equally often: how many samples only the first has
    right, how many only the second, and the two-sided probability of a difference as large or larger if they did.
    """

    only_first: int
    only_second: int
    p: float


class Comparison(_Kept, frozen=True):
    """Two evaluations of the same split of the same folder, side by side. `samples` counts those that both have.

    `only_first` and `only_second` are the paths of the samples that one alone has right, and None with `mcnemar`
    where samples are not either right or wrong.
    """

    first: Evaluation
    second: Evaluation
    samples: int
    differences: tuple[Difference, ...] = ()
    mcnemar: McNemar | None = None
    only_first: tuple[str, ...] | None = None
    only_second: tuple[str, ...] | None = None
