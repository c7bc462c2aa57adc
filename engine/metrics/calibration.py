"""Calibration of classifiers (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BINS = 15
"""Number of confidence bins for the calibration error, as in Guo et al. 2017, section 4."""
MIN_FITTED_SAMPLES = 20
"""Minimum number of samples for fitting a temperature. Guo et al. 2017 state none."""
_LOG_RANGE = (-3.0, 3.0)
"""Range of the logarithm of the temperature."""
_MIN_PROBABILITY = 1e-12


class Bins(NamedTuple):
    """Sums over the predictions in each of the 15 confidence bins, all [15].

    `weight` is the total weight of the predictions, `confidence` the weighted sum of their confidences, and `correct`
    the total weight of the correct predictions.
    """

    weight: Floats
    confidence: Floats
    correct: Floats


class FittedTemperature(NamedTuple):
    """Fitted temperature, and its effect on samples that were not used to fit it.

    `ece` and `loss` are the expected calibration error and the negative log-likelihood, each before and after scaling.
    """

    temperature: float
    ece: tuple[float, float]
    loss: tuple[float, float]


def sum_in_bins(confidence: Floats, correct: Floats, weights: npt.NDArray[np.int64] | None = None) -> Bins:
    """Sum predictions [n] in bins of equal width, by their confidence.

    A bin includes its upper edge, but not its lower one. `correct` is 1 for correct predictions, otherwise 0. Without
    `weights`, each prediction has weight 1.
    """
    weight = np.ones(len(confidence)) if weights is None else weights.astype(np.float64)
    index = (np.ceil(confidence * BINS).astype(np.int64) - 1).clip(0, BINS - 1)
    columns = (weight, weight * confidence, weight * correct)
    return Bins(*(np.bincount(index, column, BINS).astype(np.float64) for column in columns))


def expected_calibration_error(binned: Bins) -> float:
    """Return the mean distance between confidence and accuracy over the bins, weighted by size.

    Source: Guo et al. 2017, equation 3.
    """
    return float(np.abs(binned.confidence - binned.correct).sum() / max(binned.weight.sum(), _MIN_PROBABILITY))


def fit_temperature(probabilities: npt.NDArray[np.floating], true: npt.NDArray[np.int64]) -> FittedTemperature | None:
    """Fit the temperature that divides the logits of a classifier.

    The temperature minimizes the negative log-likelihood on every second sample (Guo et al. 2017, section 4.2). The
    probabilities are [n, C], and the true classes [n]. Returns None if n is less than twice `MIN_FITTED_SAMPLES`.
    """
    logits = np.log(np.maximum(probabilities.astype(np.float64), _MIN_PROBABILITY))
    return _fit_temperature(logits, true, _softmax, _score_classes)


def fit_temperature_of_labels(
    probabilities: npt.NDArray[np.floating], true: npt.NDArray[np.bool_]
) -> FittedTemperature | None:
    """Fit the temperature for a classifier with independent labels, each with a logit of its own.

    `probabilities` and `true` are [n, C]. Returns None if n is less than twice `MIN_FITTED_SAMPLES`.
    """
    clipped = probabilities.astype(np.float64).clip(_MIN_PROBABILITY, 1 - _MIN_PROBABILITY)
    return _fit_temperature(np.log(clipped) - np.log1p(-clipped), true, _sigmoid, _score_labels)


def _fit_temperature(logits, true, to_probabilities, score) -> FittedTemperature | None:  # type: ignore[no-untyped-def]
    """Fit the temperature on every second of n samples. Return None if n is less than twice `MIN_FITTED_SAMPLES`.

    Args:
        logits: Logits [n, C].
        true: True classes or labels.
        to_probabilities: Function that converts logits to probabilities.
        score: Function that returns the probability of the true classes or labels, and the confidence and correctness
            of the predictions: `_score_classes` or `_score_labels`.
    """
    from scipy.optimize import minimize_scalar

    if len(logits) < 2 * MIN_FITTED_SAMPLES:
        return None
    fitted_rows, held_out_rows = slice(0, None, 2), slice(1, None, 2)

    def loss(log_temperature: float, rows: slice) -> float:
        """Return the negative log-likelihood of the true classes for the samples `rows` at a temperature."""
        true_probabilities, _ = score(to_probabilities(logits[rows] / np.exp(log_temperature)), true[rows])
        return float(-np.log(np.maximum(true_probabilities, _MIN_PROBABILITY)).mean())

    def calibration_error(log_temperature: float) -> float:
        """Return the expected calibration error of the samples that are not used to fit, at a temperature."""
        _, predictions = score(to_probabilities(logits[held_out_rows] / np.exp(log_temperature)), true[held_out_rows])
        return expected_calibration_error(sum_in_bins(*predictions))

    best = float(minimize_scalar(lambda value: loss(value, fitted_rows), bounds=_LOG_RANGE, method="bounded").x)
    return FittedTemperature(
        temperature=float(np.exp(best)),
        ece=(calibration_error(0.0), calibration_error(best)),  # a logarithm of 0 leaves the logits unchanged
        loss=(loss(0.0, held_out_rows), loss(best, held_out_rows)),
    )


def _softmax(logits: Floats) -> Floats:
    powers: Floats = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _sigmoid(logits: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-logits))
    return probabilities


def _score_classes(probabilities: Floats, true: npt.NDArray[np.int64]) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return the probability of each sample's true class, and the confidence and correctness of each prediction.

    `probabilities` are the probabilities of the classes, [n, C]. The correctness is 1 for a correct prediction,
    otherwise 0.
    """
    rows = np.arange(len(probabilities))
    return probabilities[rows, true], (probabilities.max(1), (probabilities.argmax(1) == true).astype(np.float64))


def _score_labels(probabilities: Floats, true: npt.NDArray[np.bool_]) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return the results of `_score_classes` for independent labels, whose probabilities and truth are [n, C].

    Each label of a sample counts as a prediction.
    """
    return np.where(true, probabilities, 1 - probabilities), (probabilities.ravel(), true.ravel().astype(np.float64))
