"""Curves and calibration of labels, compared with scikit-learn and plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.contract.inference.evaluation import Interval, ThresholdRow
from engine.metrics import calibration
from engine.metrics.label_curves import (
    MAX_POINTS,
    Curve,
    RankedScores,
    average_precision,
    compute_precision_recall,
    compute_roc,
    compute_roc_area,
    compute_threshold_rows,
    create_class_curves,
    find_best_f1,
    reduce_points,
)


def draw_scores(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random scores of a label, float32 [400] with many equal values, and random ground truth, bool [400]."""
    random = np.random.default_rng(seed)
    scores = (random.integers(0, 60, 400) / 60).astype(np.float32)
    return scores, random.random(400) < scores


@pytest.mark.parametrize("seed", range(3))
def test_curves_match_scikit_learn(seed: int) -> None:
    from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

    scores, true = draw_scores(seed)
    weights = np.random.default_rng(seed).integers(0, 4, len(scores))
    ranked = RankedScores(scores, true)
    for given in (None, weights):
        counts = ranked.compute_counts(given)
        assert average_precision(counts) == pytest.approx(
            average_precision_score(true, scores, sample_weight=given), abs=1e-9
        )
        assert compute_roc_area(counts) == pytest.approx(roc_auc_score(true, scores, sample_weight=given), abs=1e-9)
    precision, recall, thresholds = precision_recall_curve(true, scores)
    curve = compute_precision_recall(ranked.compute_counts())
    assert curve.x == pytest.approx(recall[:-1][::-1])
    assert curve.y == pytest.approx(precision[:-1][::-1])
    assert curve.thresholds == pytest.approx(thresholds[::-1])
    expected_roc = roc_curve(true, scores, drop_intermediate=False)
    assert np.column_stack(compute_roc(ranked.compute_counts())) == pytest.approx(np.column_stack(expected_roc))
    f1 = 2 * curve.x * curve.y / (curve.x + curve.y).clip(1e-12)
    assert find_best_f1(curve) == (curve.thresholds[f1.argmax()], f1.max())


def test_class_without_positives_has_no_area() -> None:
    scores = np.array([0.1, 0.4], np.float32)
    none, every = (RankedScores(scores, np.full(2, value)).compute_counts() for value in (False, True))
    assert (average_precision(none), compute_roc_area(none)) == (None, None)
    assert (average_precision(every), compute_roc_area(every)) == (1.0, None)
    empty = RankedScores(np.empty(0), np.empty(0, bool)).compute_counts()
    assert (average_precision(empty), compute_roc_area(empty)) == (None, None)


def test_thinned_curve_keeps_its_shape() -> None:
    random = np.random.default_rng(0)
    scores = random.random(20_000)
    counts = RankedScores(scores, random.random(20_000) < scores).compute_counts()
    curve = compute_roc(counts)
    fewer = reduce_points(curve)
    assert len(fewer.x) <= MAX_POINTS
    assert (fewer.x[-1], fewer.y[-1], fewer.x[0]) == (1, 1, 0)
    assert np.interp(curve.x, fewer.x, fewer.y) == pytest.approx(curve.y, abs=0.03)
    assert set(zip(*fewer, strict=True)) <= set(zip(*curve, strict=True))
    short = Curve(*(values[:MAX_POINTS] for values in curve))
    assert reduce_points(short) is short
    saved = create_class_curves(0, counts, int(counts.true_positives[-1]), Interval(0.5))
    assert (saved.best_threshold, saved.best_f1) == find_best_f1(compute_precision_recall(counts))
    assert (saved.average_precision, len(saved.recall) <= MAX_POINTS) == (Interval(0.5), True)


def test_curves_and_thresholds_count_targets_without_scores() -> None:
    scores, true = np.array([0.9, 0.6, 0.3]), np.array([True, False, True])
    rows = {row.threshold: row for row in compute_threshold_rows(scores, true, positives=4.0)}
    assert rows[0.5] == ThresholdRow(threshold=0.5, share=2 / 3, precision=0.5, recall=0.25, f1=1 / 3)
    assert rows[0.9] == ThresholdRow(threshold=0.9, share=1 / 3, precision=1.0, recall=0.25, f1=0.4)
    assert rows[0.95] == ThresholdRow(threshold=0.95, share=0.0, precision=None, recall=0.0, f1=0.0)
    empty = compute_threshold_rows(np.empty(0), np.empty(0, bool), positives=0.0)
    assert empty[0] == ThresholdRow(threshold=0.0, share=0.0, precision=None, recall=None, f1=None)
    curves = create_class_curves(1, RankedScores(scores, true).compute_counts(), 4, None)
    assert (curves.class_index, curves.positives, curves.recall) == (1, 4, (0.25, 0.25, 0.5))
    assert (curves.precision, curves.thresholds) == (pytest.approx((1, 0.5, 2 / 3)), (0.9, 0.6, 0.3))
    assert (curves.best_threshold, curves.best_f1) == (0.3, pytest.approx(4 / 7))


def test_calibration_error_matches_its_definition() -> None:
    random = np.random.default_rng(1)
    confidence = np.append(random.random(500), [0, 1, 1 / 15])
    right, weights = (random.random(503) < confidence**2).astype(float), random.integers(1, 4, 503)
    binned, total = calibration.sum_in_bins(confidence, right, weights), 0.0
    for number in range(15):
        low, high = number / 15, (number + 1) / 15
        inside = (confidence > low) & (confidence <= high) if number else confidence <= high
        weight, confident, correct = ((weights * each)[inside].sum() for each in (1, confidence, right))
        assert [column[number] for column in binned] == pytest.approx([weight, confident, correct])
        total += abs(confident - correct)
    assert calibration.expected_calibration_error(binned) == pytest.approx(total / weights.sum(), abs=1e-9)
    assert calibration.sum_in_bins(confidence, right).weight.sum() == 503


def test_temperature_recovers_sharpened_logits() -> None:
    random = np.random.default_rng(2)
    logits = random.normal(0, 2, (6000, 4))
    likely = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    true = (likely.cumsum(1) > random.random((6000, 1))).argmax(1)
    sharp = np.exp(2.5 * logits)
    sharp /= sharp.sum(1, keepdims=True)
    fitted = calibration.fit_temperature(sharp.astype(np.float32), true)
    assert fitted is not None
    assert fitted.temperature == pytest.approx(2.5, rel=0.1)
    assert fitted.ece[1] < fitted.ece[0] / 3
    from sklearn.metrics import log_loss

    assert fitted.loss[0] == pytest.approx(log_loss(true[1::2], sharp[1::2], labels=range(4)), rel=1e-4)
    of_labels = calibration.fit_temperature_of_labels(
        1 / (1 + np.exp(-2.5 * logits)), random.random(logits.shape) < 1 / (1 + np.exp(-logits))
    )
    assert of_labels is not None
    assert of_labels.temperature == pytest.approx(2.5, rel=0.1)
    true[1::2] = random.integers(0, 4, 3000)  # every second sample is not used to fit
    of_half = calibration.fit_temperature(sharp, true)
    assert of_half is not None
    assert of_half.temperature == pytest.approx(2.5, rel=0.1)
    fewest = 2 * calibration.MIN_FITTED_SAMPLES
    assert calibration.fit_temperature(sharp[: fewest - 1], true[: fewest - 1]) is None
    assert calibration.fit_temperature(sharp[:fewest], true[:fewest]) is not None
