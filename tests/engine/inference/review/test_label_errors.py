"""Confident learning. It must find labels that were replaced by wrong ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.inference.review.label_errors import (
    compute_label_margins,
    estimate_error_count,
    estimate_joint,
    find_wrong_labels,
)
from tests.benchmarks.label_errors import AIM, IMAGES, measure


def make_predictions(count: int, classes: int, flipped: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the probabilities of a model with 85% accuracy, [count, classes], the labels, and flags for wrong labels.

    `flipped` is the fraction of the labels that are wrong.
    """
    random = np.random.default_rng(0)
    true = random.integers(0, classes, count)
    logits = random.normal(0, 1, (count, classes))
    logits[np.arange(count), true] += 3
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    wrong = random.random(count) < flipped
    labels = np.where(wrong, (true + random.integers(1, classes, count)) % classes, true)
    return probabilities, labels, wrong


def test_flipped_labels_rank_first() -> None:
    probabilities, labels, wrong = make_predictions(1000, 5, 0.1)
    found = find_wrong_labels(probabilities, labels)
    assert (found & wrong).sum() / wrong.sum() > 0.8
    assert (found & wrong).sum() / found.sum() > 0.8
    assert estimate_error_count(probabilities, labels) == pytest.approx(wrong.sum(), rel=0.35)
    first = np.argsort(compute_label_margins(probabilities, labels), kind="stable")[:150]
    assert wrong[first].sum() / wrong.sum() > 0.8


def test_estimates_match_the_definition() -> None:
    first = np.array([0.9, 0.8, 0.2, 0.3, 0.6, 0.95, 0.62])
    probabilities, labels = np.stack([first, 1 - first], 1), np.array([0, 0, 0, 1, 1, 1, 1])
    # Samples are confident from 0.6333 (class 0) and 0.3825 (class 1) on: 0.6 of class 0 is not, but 0.4 of class 1 is.
    assert estimate_joint(probabilities, labels) == pytest.approx(np.array([[2, 1], [4 / 3, 8 / 3]]))
    assert estimate_error_count(probabilities, labels) == pytest.approx(7 / 3)
    assert np.flatnonzero(find_wrong_labels(probabilities, labels)).tolist() == [2, 5]
    assert compute_label_margins(probabilities, labels) == pytest.approx([0.8, 0.6, -0.6, 0.4, -0.2, -0.9, -0.24])


def test_joint_counts_sum_to_the_labels() -> None:
    probabilities, labels, _ = make_predictions(200, 3, 0.2)
    probabilities = np.concatenate([probabilities * 0.9, np.full((200, 1), 0.1)], 1)
    joint = estimate_joint(probabilities, labels)
    assert np.allclose(joint.sum(1), np.bincount(labels, minlength=4))
    assert not joint[:, 3].any()


def test_correct_labels_are_not_suspected() -> None:
    probabilities = np.full((60, 3), 0.05)
    labels = np.arange(60) % 3
    probabilities[np.arange(60), labels] = 0.9
    assert not find_wrong_labels(probabilities, labels).any()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_cross_validation_finds_wrong_labels(tmp_path: Path) -> None:
    if not IMAGES.is_dir():
        pytest.skip(f"{IMAGES} is missing")
    found, _ = measure(tmp_path, share=0.1, folds=4, epochs=12, seed=0)
    assert found >= AIM
