"""Calibration of classifiers (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BINS = 15
"""Number of bins, as in section 4 of the paper."""
MIN_FITTED = 20
"""Minimum number of samples for fitting a temperature. The value is not from the paper."""
_LOG_RANGE = (-3.0, 3.0)
"""Search range for the logarithm of the temperature."""
_TINY = 1e-12


class Bins(NamedTuple):
    """Sums over the predictions in each bin, all [15].

    `weight` is their total weight, `confidence` the weighted sum of their confidences, and `right` the weight of the
    correct ones.
    """

    weight: Floats
    confidence: Floats
    right: Floats


class Fitted(NamedTuple):
    """Fitted temperature, and its effect on samples that were not used to fit it.

    `ece` and `loss` are the expected calibration error and the negative log-likelihood, each before and after scaling.
    """

    temperature: float
    ece: tuple[float, float]
    loss: tuple[float, float]


def bins(confidence: Floats, right: Floats, weights: npt.NDArray[np.int64] | None = None) -> Bins:
    """Sum predictions [n] in bins of equal width, by their confidence.

    The lower edge of a bin is not part of it. `right` is 1 for correct predictions, otherwise 0. Without `weights`,
    each prediction has weight 1.
    """
    weight = np.ones(len(confidence)) if weights is None else weights.astype(np.float64)
    index = (np.ceil(confidence * BINS).astype(np.int64) - 1).clip(0, BINS - 1)
    columns = (weight, weight * confidence, weight * right)
    return Bins(*(np.bincount(index, column, BINS).astype(np.float64) for column in columns))


def expected_error(found: Bins) -> float:
    """Return the mean distance between confidence and accuracy over the bins, weighted by size (equation 3)."""
    return float(np.abs(found.confidence - found.right).sum() / max(found.weight.sum(), _TINY))


def fit_temperature(probabilities: npt.NDArray[np.floating], true: npt.NDArray[np.int64]) -> Fitted | None:
    """Fit the temperature that divides the logits of a classifier. Return None if there are too few samples.

    It minimizes the negative log-likelihood on every second sample (section 4.2).

    Args:
        probabilities: Probabilities of the classes, [n, C].
        true: True classes, [n].
    """
    return _fit(np.log(np.maximum(probabilities.astype(np.float64), _TINY)), true, _softmax, _score_classes)


def fit_temperature_of_labels(probabilities: npt.NDArray[np.floating], true: npt.NDArray[np.bool_]) -> Fitted | None:
    """Fit the temperature for a classifier with independent labels. Return None if there are too few samples.

    Each label has its own logit. `probabilities` and `true` are [n, C].
    """
    likely = probabilities.astype(np.float64).clip(_TINY, 1 - _TINY)
    return _fit(np.log(likely) - np.log1p(-likely), true, _sigmoid, _score_labels)


def _fit(logits, true, to_probabilities, score) -> Fitted | None:  # type: ignore[no-untyped-def]
    from scipy.optimize import minimize_scalar

    if len(logits) < 2 * MIN_FITTED:
        return None
    fitted, held_out = slice(0, None, 2), slice(1, None, 2)

    def loss(log_temperature: float, rows: slice) -> float:
        likely, _ = score(to_probabilities(logits[rows] / np.exp(log_temperature)), true[rows])
        return float(-np.log(np.maximum(likely, _TINY)).mean())

    found = float(minimize_scalar(lambda value: loss(value, fitted), bounds=_LOG_RANGE, method="bounded").x)
    errors = []
    for log_temperature in (0.0, found):
        _, predictions = score(to_probabilities(logits[held_out] / np.exp(log_temperature)), true[held_out])
        errors.append(expected_error(bins(*predictions)))
    return Fitted(float(np.exp(found)), (errors[0], errors[1]), (loss(0.0, held_out), loss(found, held_out)))


def _softmax(logits: Floats) -> Floats:
    powers: Floats = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _sigmoid(logits: Floats) -> Floats:
    likely: Floats = 1 / (1 + np.exp(-logits))
    return likely


def _score_classes(likely: Floats, true: npt.NDArray[np.int64]) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return the probability of each sample's true class, and the confidence and correctness of each prediction.

    `likely` are the probabilities of the classes, [n, C]. A prediction is correct with 1 and wrong with 0.
    """
    rows = np.arange(len(likely))
    return likely[rows, true], (likely.max(1), (likely.argmax(1) == true).astype(np.float64))


def _score_labels(likely: Floats, true: npt.NDArray[np.bool_]) -> tuple[Floats, tuple[Floats, Floats]]:
    """Return the results of `_score_classes` for independent labels. Each label of a sample counts as a prediction."""
    return np.where(true, likely, 1 - likely), (likely.ravel(), true.ravel().astype(np.float64))
