"""Boundary metrics, compared with a simple implementation of their definitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from scipy.optimize import linear_sum_assignment

from engine.tasks.edges.decoding import read_edges
from engine.tasks.edges.metrics import (
    ANNOTATED,
    MATCHED_ANNOTATED,
    MATCHED_PREDICTED,
    PREDICTED,
    THRESHOLDS,
    compute_scores,
    count_matches,
    select_best_counts,
    suppress_non_maxima,
)
from tests.support.edges import make_edged

SIDES = (60, 44)
BSDS = Path(__file__).parents[5] / "shared/datasets/bsds500_subset"


def draw_lines(seed: int) -> np.ndarray:
    """Return a mask of a few straight lines that are one pixel wide."""
    random = np.random.default_rng(seed)
    plane = np.zeros(SIDES, bool)
    for _ in range(3):
        top, left, down, right = random.integers(0, SIDES * 2)
        rows, columns = (
            np.linspace(one, other, 120).round().astype(int) for one, other in ((top, down), (left, right))
        )
        inside = (rows < SIDES[0]) & (columns < SIDES[1])
        plane[rows[inside], columns[inside]] = True
    return plane


def draw_detection(drawn: np.ndarray, seed: int) -> np.ndarray:
    """Return a detection of the lines in `drawn`: shifted, with gaps, varying strengths and noise."""
    random = np.random.default_rng(seed)
    moved = np.roll(drawn, random.integers(-1, 2, 2), (0, 1)) & (random.random(SIDES) < 0.8)
    strength = np.where(moved, random.uniform(0.2, 1, SIDES), 0)
    other = random.random(SIDES) < 0.04
    return np.where(other, random.uniform(0, 0.7, SIDES), strength)


def match_by_assignment(found: np.ndarray, drawn: np.ndarray) -> int:
    """Return the maximum number of one-to-one matches between the pixels of two masks.

    Pixels match if they are at most 0.0075 of the image diagonal apart.
    """
    one, other = np.argwhere(found), np.argwhere(drawn)
    if not len(one) or not len(other):
        return 0
    apart = np.hypot(*(one[:, None] - other[None]).transpose(2, 0, 1))
    near = apart <= 0.0075 * np.hypot(*drawn.shape)
    rows, columns = linear_sum_assignment(~near)
    return int(near[rows, columns].sum())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_matching_equals_the_full_assignment(seed: int) -> None:
    # In a larger image the tolerance is 2.8 px, so that many pixels may be matched with several.
    drawn, found = np.zeros((300, 220), bool), np.zeros((300, 220))
    drawn[: SIDES[0], : SIDES[1]], found[: SIDES[0], : SIDES[1]] = (
        draw_lines(seed),
        draw_detection(draw_lines(seed), seed + 10),
    )
    counts = count_matches(found, [drawn])
    for threshold in (0.05, 0.25, 0.5, 0.9):
        place = int(np.argmin(np.abs(THRESHOLDS - threshold)))
        strong = found >= THRESHOLDS[place]
        matched = match_by_assignment(strong, drawn)
        assert counts[place].tolist() == [matched, drawn.sum(), matched, strong.sum()]
    assert 0 < counts[4, MATCHED_ANNOTATED] < min(counts[4, ANNOTATED], counts[4, PREDICTED])


def test_precision_needs_one_annotator_recall_all() -> None:
    top, bottom = np.zeros((80, 80), bool), np.zeros((80, 80), bool)
    top[10, 5:75], bottom[60, 5:75] = True, True
    found = np.zeros((80, 80))
    found[10, 5:75], found[40, 5:75] = 0.8, 0.4
    counts = count_matches(found, [top, bottom, top])
    # An edge counts at the thresholds up to its strength.
    for threshold, expected in ((79, [140, 210, 70, 70]), (39, [140, 210, 70, 140]), (80, [0, 210, 0, 0])):
        assert counts[threshold].tolist() == expected


def test_matches_are_one_to_one() -> None:
    drawn = np.zeros((200, 200), bool)
    drawn[100, 20:180] = True
    found = np.zeros((200, 200))
    found[99, 20:180] = found[101, 20:180] = 1
    assert count_matches(found, [drawn])[50].tolist() == [160, 160, 160, 320]
    found[:] = 0
    found[103, 20:180] = 1  # the tolerance is 2.1 px
    assert count_matches(found, [drawn])[50, MATCHED_PREDICTED] == 0
    found, drawn = (np.pad(each, ((20, 20), (0, 120))) for each in (found, drawn))  # the diagonal is 400 px
    assert count_matches(found, [drawn])[50, MATCHED_PREDICTED] == 160


def test_scores_match_their_definitions() -> None:
    images = [count_matches(draw_detection(draw_lines(seed), seed + 20), [draw_lines(seed)]) for seed in range(4)]
    scores = compute_scores(sum(images), sum(map(select_best_counts, images)))

    def f_measure(rows: np.ndarray) -> float:
        recall, precision = rows[0] / rows[1], rows[2] / max(rows[3], 1)
        return 2 * recall * precision / max(recall + precision, 1e-12)

    of_all = [f_measure(row) for row in sum(images)]
    assert scores.ods == pytest.approx(max(of_all))
    assert scores.threshold == THRESHOLDS[int(np.argmax(of_all))]
    best = sum(counts[int(np.argmax([f_measure(row) for row in counts]))] for counts in images)
    assert scores.ois == pytest.approx(f_measure(best))
    assert 0 < scores.ap < 1
    # The precision falls from 1 to 0.5 between recalls of 0.2 and 0.6, and is 0 elsewhere.
    counts = np.array([[6, 10, 6, 12], [6, 10, 6, 8], [2, 10, 2, 2]])
    assert compute_scores(counts, counts[0]).ap == pytest.approx(41 * 0.75 / 100)


def test_perfect_edges_score_one_and_none_zero() -> None:
    drawn = draw_lines(5)
    counts = count_matches(drawn * 0.995, [drawn])
    # As in the benchmark, a single recall has no area.
    assert compute_scores(counts, select_best_counts(counts)) == (1, 1, 0, 0.01)
    counts = count_matches(np.zeros(SIDES), [drawn])
    assert compute_scores(counts, select_best_counts(counts))[:3] == (0, 0, 0)


@pytest.mark.parametrize("middle_px", [40, 40.5])
def test_soft_edge_is_thinned_to_its_middle(middle_px: float) -> None:
    rows, columns = np.mgrid[:80, :80] - middle_px
    for angle in np.linspace(0, np.pi, 9):
        apart = rows * np.cos(angle) + columns * np.sin(angle)
        thin = suppress_non_maxima(np.exp(-(apart**2) / 18))
        middle = (slice(20, 60), slice(20, 60))
        ridge = thin[middle] > 0.3
        assert thin[middle].max() == pytest.approx(0.95, abs=0.05)
        assert np.abs(apart[middle][ridge]).max() <= 1
        assert 35 <= ridge.sum() <= 85
        assert ndimage.label(ridge, np.ones((3, 3)))[1] == 1
    assert not thin[0].any()
    assert not thin[:, -1].any()
    assert not suppress_non_maxima(np.ones((1, 9))).any()


def test_annotator_agreement_matches_by_hand(tmp_path: Path) -> None:
    """Let the second annotator draw half of the first annotator's edges, in the format of BSDS500.

    Half of the first annotator's edges are therefore correct, and all edges of the second annotator are found.
    """
    make_edged(tmp_path, {"test": 2}, side=64, matlab=True)
    read = [read_edges(str(file)).layers for file in sorted(tmp_path.glob("groundTruth/test/*.mat"))]
    assert [len(layers) for layers in read] == [2, 2]
    counts = sum(count_matches(layers[0] * 0.995, layers[1:]) for layers in read)
    drawn, also = (sum(int(layers[which].sum()) for layers in read) for which in (0, 1))
    right = also / drawn
    assert compute_scores(counts, counts[0]).ods == pytest.approx(2 * right / (right + 1), rel=0.05)
    assert compute_scores(counts, counts[0]).ods < 0.95


@pytest.mark.skipif(not BSDS.is_dir(), reason="needs bsds500_subset")
def test_bsds500_agreement_matches_the_benchmark() -> None:
    """Compare with the agreement between annotators of 0.80 that Arbelaez et al. 2011 give."""
    files = sorted((BSDS / "groundTruth/test").glob("*.mat"))[:2]
    counts = sum(
        count_matches(layers[0] * 0.995, layers[1:]) for layers in (read_edges(str(file)).layers for file in files)
    )
    assert 0.6 < compute_scores(counts, counts[0]).ods < 0.95
