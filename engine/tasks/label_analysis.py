"""Base of the analyses for image classes and labels: curves, calibration and thresholds."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import structs

from engine.contract.catalogue import Measure
from engine.contract.inference.evaluation import Calibration, ClassCurves, Interval, ReliabilityBin
from engine.metrics import calibration
from engine.metrics.calibration import FittedTemperature
from engine.metrics.class_counts import ClassValues
from engine.metrics.label_curves import (
    RankedScores,
    average_precision,
    compute_roc,
    compute_roc_area,
    compute_threshold_rows,
    create_class_curves,
    reduce_points,
)
from engine.tasks.analysis import Analysis, EvaluatedMetrics, Intervals, MetricValues, SampleColumns

MAX_RESAMPLED_CELLS = 1 << 21
"""Maximum number of samples times classes for which curves are resampled.

Above this limit, the areas under the curves have no confidence intervals.
"""

Floats = npt.NDArray[np.float64]


class Predictions(NamedTuple):
    """Predictions for all n samples.

    Attributes:
        confidence: Confidence of each prediction, [n * per_sample].
        correct: 1 for each correct prediction, otherwise 0, [n * per_sample].
        per_sample: Number of predictions per sample.
        positives: Total number of true classes or labels of all samples, for computing the recall.
    """

    confidence: Floats
    correct: Floats
    per_sample: int
    positives: float


class LabelAnalysis(Analysis):
    """Analysis for models that return a probability for each class."""

    entries = (
        Measure("map", "Mean average precision", higher_is_better=True, percent=True),
        Measure("auc", "Mean AUC", higher_is_better=True, percent=True),
        Measure("ece", "Calibration error", higher_is_better=False, percent=True),
    )

    @abstractmethod
    def convert_to_predictions(self, columns: SampleColumns) -> Predictions:
        """Convert the results of all samples to predictions, each with its confidence and correctness."""

    @abstractmethod
    def fit_temperature(self, columns: SampleColumns) -> FittedTemperature | None:
        """Fit the temperature that calibrates the probabilities, using every second sample.

        Return None for fewer than 2 * `calibration.MIN_FITTED_SAMPLES` samples.
        """

    def prepare(self, columns: SampleColumns) -> None:
        """Sort the samples by the probability of each class, and fit the temperature. The other methods use both."""
        assert columns.true is not None
        assert columns.probabilities is not None
        truth = make_true_class_mask(columns.true, len(self.classes))
        self._ranked = [
            RankedScores(columns.probabilities[:, number], truth[:, number]) for number in range(len(self.classes))
        ]
        self._predictions = self.convert_to_predictions(columns)
        self._fitted = self.fit_temperature(columns)

    def compute_values(self, measured: EvaluatedMetrics) -> MetricValues:
        """Return the metrics, with the calibration error, average precision and ROC area added.

        For a bootstrap resample, the last two are left out if samples times classes exceed `MAX_RESAMPLED_CELLS`.
        """
        measures, per_class = super().compute_values(measured)
        predictions, weights = self._predictions, measured.weights
        binned = calibration.sum_in_bins(
            predictions.confidence, predictions.correct, weights.repeat(predictions.per_sample)
        )
        measures = {**measures, "ece": calibration.expected_calibration_error(binned)}
        is_resampled = bool((weights != 1).any())
        if is_resampled and weights.size * len(self.classes) > MAX_RESAMPLED_CELLS:
            return MetricValues(measures, per_class)
        counts = [ranked.compute_counts(weights) for ranked in self._ranked]
        precisions, areas = tuple(map(average_precision, counts)), tuple(map(compute_roc_area, counts))
        means = _average_measure("map", precisions) | _average_measure("auc", areas)
        return MetricValues(means | measures, {"AP": precisions, "AUC": areas, **per_class})

    def compute_details(self, measured: EvaluatedMetrics, intervals: Intervals) -> dict[str, Any]:
        """Return the calibration, before and after fitting a temperature, and the table of thresholds."""
        predictions, fitted = self._predictions, self._fitted
        binned = calibration.sum_in_bins(predictions.confidence, predictions.correct)
        sums_of_bins = zip(*(sums.tolist() for sums in binned), strict=True)
        ece_before, ece_after = fitted.ece if fitted else (None, None)
        loss_before, loss_after = fitted.loss if fitted else (None, None)
        report = Calibration(
            ece=intervals.measures["ece"],
            bins=tuple(_create_reliability_bin(number, sums) for number, sums in enumerate(sums_of_bins)),
            temperature=fitted.temperature if fitted else None,
            ece_before=ece_before,
            ece_after=ece_after,
            loss_before=loss_before,
            loss_after=loss_after,
        )
        rows = compute_threshold_rows(predictions.confidence, predictions.correct > 0, predictions.positives)
        return {"calibration": report, "thresholds": rows}

    def compute_curves(self, measured: EvaluatedMetrics, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """Return the curves of each class with the intervals of its average precision and ROC area."""
        precisions, areas = intervals.per_class["AP"], intervals.per_class["AUC"]
        classes = enumerate(zip(self._ranked, precisions, areas, strict=True))
        return tuple(
            _create_class_curves(number, ranked, precision, area) for number, (ranked, precision, area) in classes
        )


def make_true_class_mask(true: list[tuple[int, ...]], classes: int) -> npt.NDArray[np.bool_]:
    """Convert the true classes of each sample to a mask, [n, classes]."""
    truth = np.zeros((len(true), classes), bool)
    rows = np.repeat(np.arange(len(true)), [len(each) for each in true])
    truth[rows, [number for each in true for number in each]] = True
    return truth


def _average_measure(name: str, values: ClassValues) -> dict[str, float]:
    """Return {name: mean} with the mean of the values that are not None, or {} if all are None."""
    present = [value for value in values if value is not None]
    return {name: float(np.mean(present))} if present else {}


def _create_reliability_bin(number: int, sums: tuple[float, float, float]) -> ReliabilityBin:
    """Create the report of the calibration bin with the index `number`.

    `sums` are the number of predictions in the bin, the sum of their confidences, and the number of correct
    predictions.
    """
    count, confidence, correct = sums
    return ReliabilityBin(
        low=number / calibration.BINS,
        high=(number + 1) / calibration.BINS,
        count=round(count),
        confidence=confidence / count if count else None,
        accuracy=correct / count if count else None,
    )


def _create_class_curves(
    number: int, ranked: RankedScores, precision: Interval | None, area: Interval | None
) -> ClassCurves:
    """Return the precision-recall and ROC curves of a class.

    Args:
        number: Index of the class.
        ranked: Samples sorted by the probability of the class.
        precision: Average precision of the class, or None if no sample belongs to it. Both curves are then empty.
        area: Area under the ROC curve, or None if it is undefined. The ROC curve is then empty.
    """
    counts = ranked.compute_counts()
    if precision is None:
        return ClassCurves(class_index=number, positives=0)
    precision_recall = create_class_curves(number, counts, round(float(counts.true_positives[-1])), precision)
    if area is None:
        return precision_recall
    curve = reduce_points(compute_roc(counts))
    return structs.replace(
        precision_recall,
        false_positive_rate=tuple(curve.x.tolist()),
        true_positive_rate=tuple(curve.y.tolist()),
        auc=area,
    )
