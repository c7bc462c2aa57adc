"""Compare predicted and annotated edges with the method of the Berkeley benchmark.

Sources: Martin et al., PAMI 2004; Arbelaez et al., PAMI 2011, section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.data.decoding.idx import Bytes
from engine.metrics.base import Metric
from engine.tasks.edges.decoding import MAX_ANNOTATORS, OUTSIDE

Floats = npt.NDArray[np.floating]
Counts = npt.NDArray[np.int64]
Plane = npt.NDArray[np.bool_]

THRESHOLDS = np.arange(1, 100) / 100
"""Thresholds above which a pixel counts as an edge, as in `edgesEval` by Dollár and Zitnick."""
TOLERANCE = 0.0075
"""Largest distance between matching edges as a fraction of the image diagonal, as in the BSDS500 benchmark."""
_BORDER_FRACTION = 5 / 578
"""Fraction of the diagonal over which edges fade out at the image border: 5 px in BSDS500, as in `edgesNms`."""
_NEIGHBOR_TOLERANCE = 1.01
"""Factor that multiplies an edge's strength before comparing it with its neighbors, as in `edgesNms`."""

MATCHED_ANNOTATED, ANNOTATED, MATCHED_PREDICTED, PREDICTED = range(4)
"""Columns of counts [thresholds, 4], in pixels. Drawn pixels are summed over the annotators."""
_COUNTS = len(THRESHOLDS) * 4


class Scores(NamedTuple):
    """Edge scores over all images.

    Attributes:
        ods: Best F measure with one threshold for all images.
        ois: F measure with the best threshold for each image.
        ap: Average precision.
        threshold: Threshold of `ods`.
    """

    ods: float
    ois: float
    ap: float
    threshold: float


class EdgeMetric(Metric):
    """Boundary metrics of a validation, and the mean loss.

    `loss(outputs, targets)` returns the loss of each image, [n]. `counters` are the sum of the losses, the number of
    images, the counts over all images at each threshold (see `count_matches`), and the counts of each image at its best
    threshold, summed over the images.
    """

    def __init__(self, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.counters = torch.zeros(2 + _COUNTS + 4, dtype=torch.float64)
        self._loss = loss

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add the losses and the matches between thinned predicted edges and annotated edges to `counters`.

        Matches are counted at all thresholds, and at the best threshold of each image.
        """
        losses = self._loss(outputs, targets)
        likelihoods = outputs[:, -1].float().sigmoid().cpu().numpy()  # the last map is the result
        annotations = targets.to(torch.uint8).cpu().numpy()
        total_counts, at_best = np.zeros((len(THRESHOLDS), 4), np.int64), np.zeros(4, np.int64)
        for likelihood, (agreement, annotator_bits) in zip(likelihoods, annotations, strict=True):
            region = _find_image_region(agreement)
            layers = [(annotator_bits[region] >> number & 1).astype(bool) for number in range(MAX_ANNOTATORS)]
            thinned = np.where(agreement[region] == OUTSIDE, 0, suppress_non_maxima(likelihood[region]))
            image_counts = count_matches(thinned, [layer for layer in layers if layer.any()])
            total_counts += image_counts
            at_best += select_best_counts(image_counts)
        sums = np.concatenate([[float(losses.double().sum()), len(losses)], total_counts.ravel(), at_best])
        self.counters = self.counters.to(outputs.device) + torch.from_numpy(sums).to(outputs.device)

    def compute(self) -> dict[str, float]:
        """Return the F-scores ODS and OIS, the average precision and the mean loss by id, or {} without images."""
        loss, images = self.counters[:2].tolist()
        if not images:
            return {}
        scores = self.compute_scores()
        return {"ods": scores.ods, "ois": scores.ois, "ap": scores.ap, "loss": loss / images}

    def compute_scores(self) -> Scores:
        """Return ODS, OIS and average precision over all images."""
        return compute_scores(self._counts, self.counters[2 + _COUNTS :].cpu().numpy())

    def compute_curve(self) -> tuple[Floats, Floats]:
        """Return the recall and the precision over all images at each of `THRESHOLDS`."""
        return compute_recall_and_precision(self._counts)

    @property
    def annotated_pixels(self) -> int:
        """Sum over the annotators of the number of pixels that each has drawn."""
        return int(self._counts[0, ANNOTATED])

    @property
    def _counts(self) -> Floats:
        counts: Floats = self.counters[2 : 2 + _COUNTS].cpu().numpy().reshape(-1, 4)
        return counts


def _find_image_region(agreement: Bytes) -> tuple[slice, slice]:
    """Return the rows and columns that the image occupies in a letterboxed square.

    `agreement` [s, s] is the first plane of `letterbox_edges`, which has the value `OUTSIDE` around the image.
    """
    inside = agreement != OUTSIDE
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    if not len(rows):
        return slice(0, 0), slice(0, 0)
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def suppress_non_maxima(strengths: Floats) -> Floats:
    """Return edge strengths [h, w] in 0..1 with 0 wherever they are not a local maximum across the edge.

    This is the non-maximum suppression by Dollár and Zitnick (PAMI 2015; `edgesNms` in their toolbox), with bilinear
    interpolation at one pixel to each side. As in the toolbox, the strengths are smoothed first, and fade to 0 at the
    image border. If a side has fewer than two pixels, all strengths become 0.
    """
    height, width = strengths.shape
    if min(height, width) < 2:
        return np.zeros_like(strengths)
    from scipy.ndimage import map_coordinates

    edges = _smooth(strengths.astype(np.float64), 1)
    down, right = np.gradient(_smooth(edges, 4))
    right_down, right_right = np.gradient(right)
    down_down, _ = np.gradient(down)
    side = np.where(right_down > 0, -1.0, 1.0)  # the toolbox uses 0 for horizontal edges, which then stay thick
    normal = np.mod(np.arctan(down_down * side / (right_right + 1e-5)), np.pi)
    rows, columns = np.mgrid[:height, :width]
    is_maximum = np.ones((height, width), bool)
    for sign in (-1, 1):  # the neighbors on both sides of the edge
        positions = (rows + sign * np.sin(normal), columns + sign * np.cos(normal))
        neighbor = map_coordinates(edges, positions, order=1, mode="nearest")
        is_maximum &= edges * _NEIGHBOR_TOLERANCE >= neighbor
    border = min(round(_BORDER_FRACTION * float(np.hypot(height, width))), height // 2, width // 2)
    return np.where(is_maximum, edges, 0) * np.outer(
        _create_border_weights(height, border), _create_border_weights(width, border)
    )


def _smooth(values: Floats, radius: int) -> Floats:
    """Smooth values [h, w] with a triangle filter of the given radius in both directions."""
    from scipy.ndimage import convolve1d

    weights = np.concatenate([np.arange(1, radius + 1), [radius + 1], np.arange(radius, 0, -1)]) / (radius + 1) ** 2
    smooth: Floats = convolve1d(convolve1d(values, weights, axis=0), weights, axis=1)
    return smooth


def _create_border_weights(length: int, border: int) -> Floats:
    """Return weights [length] that are 1 in the middle and decrease to 0 over `border` values at both ends."""
    from_end = np.minimum(np.arange(length), np.arange(length)[::-1])
    faded: Floats = np.minimum(from_end / border, 1) if border else np.ones(length)
    return faded


def count_matches(thin: Floats, annotators: Sequence[Plane]) -> Counts:
    """Count matches between predicted edges and the drawing of each annotator, int64 [thresholds, 4].

    `thin` [h, w] are thinned edge strengths. The columns of the result are `MATCHED_ANNOTATED`, `ANNOTATED`,
    `MATCHED_PREDICTED` and `PREDICTED`. For each annotator, a predicted pixel matches at most one drawn pixel within
    the tolerance and vice versa, and the number of matches is maximal. `ANNOTATED` and `MATCHED_ANNOTATED` are sums
    over the annotators. `MATCHED_PREDICTED` is the number of predicted pixels that match at least one annotator.
    """
    levels = np.searchsorted(THRESHOLDS, thin.ravel(), side="right").reshape(thin.shape)
    rows, columns = np.nonzero(levels)
    order = np.argsort(-levels[rows, columns], kind="stable")
    rows, columns = rows[order], columns[order]
    by_annotator = [_match_pixels(rows, columns, drawn) for drawn in annotators if drawn.any()]
    annotators_matched = np.sum([np.zeros(len(rows), bool), *by_annotator], axis=0)  # of each predicted pixel
    # The pixels are sorted by strength, so those above a threshold are the first `predicted` ones.
    predicted = (levels[rows, columns][:, None] > np.arange(len(THRESHOLDS))).sum(0)
    counts = np.zeros((len(THRESHOLDS), 4), np.int64)
    counts[:, PREDICTED] = predicted
    counts[:, ANNOTATED] = sum(int(drawn.sum()) for drawn in annotators)
    counts[:, MATCHED_PREDICTED] = np.cumsum([0, *(annotators_matched > 0)])[predicted]
    counts[:, MATCHED_ANNOTATED] = np.cumsum([0, *annotators_matched])[predicted]
    return counts


def _match_pixels(rows: Counts, columns: Counts, drawn: Plane) -> Plane:
    """Return a mask of the predicted pixels (`rows`, `columns`) that have a match among the drawn pixels.

    The matching is maximal for each prefix of the predicted pixels.

    Each pixel in turn searches for a partner. If all partners within reach are taken, it searches for a chain of
    partners that can be moved (an augmenting path; Kuhn 1955). A pixel that finds no partner never gets one later, and
    the pixels on its search path can't help others. Therefore later pixels are never matched at the cost of earlier
    ones.
    """
    near = _find_reachable_pixels(rows, columns, drawn)
    taken_by = [-1] * int(drawn.sum())  # predicted pixel that each drawn pixel is matched with, or -1 if it is free
    partner: dict[int, int] = {}  # drawn pixel of each matched predicted pixel
    exhausted: set[int] = set()  # drawn pixels that are known not to lead to a free one
    for pixel in range(len(near)):
        reached_from: dict[int, int] = {}
        free = _search_path(pixel, near, taken_by, exhausted, reached_from)
        if free < 0:
            exhausted.update(reached_from)
            continue
        # Follow the path back to `pixel`, and match each predicted pixel on it with the drawn pixel after it.
        predicted = -1
        while predicted != pixel:
            predicted = reached_from[free]
            taken_by[free] = predicted
            partner[predicted], free = free, partner.get(predicted, -1)
    matched = np.zeros(len(rows), bool)
    matched[list(partner)] = True
    return matched


def _search_path(
    pixel: int, near: list[list[int]], taken_by: list[int], exhausted: set[int], reached_from: dict[int, int]
) -> int:
    """Search breadth-first for an augmenting path from a predicted pixel to an unmatched pixel of the ground truth.

    Returns the index of that pixel, or -1 if there is no path.

    Args:
        pixel: Index of the predicted pixel.
        near: Drawn pixels within reach of each predicted pixel, nearest first.
        taken_by: Predicted pixel that each drawn pixel is matched with, or -1 if it is free.
        exhausted: Drawn pixels that are known not to lead to a free one.
        reached_from: Filled with the predicted pixel from which each drawn pixel was reached.
    """
    queue = [pixel]
    for predicted in queue:
        for drawn in near[predicted]:
            if drawn in reached_from or drawn in exhausted:
                continue
            reached_from[drawn] = predicted
            if taken_by[drawn] < 0:
                return drawn
            queue.append(taken_by[drawn])
    return -1


def _find_reachable_pixels(rows: Counts, columns: Counts, drawn: Plane) -> list[list[int]]:
    """Return, for each predicted pixel, the indices of the drawn pixels within the tolerance, nearest first."""
    height, width = drawn.shape
    distance = TOLERANCE * float(np.hypot(height, width))
    reach = int(distance)
    # Index of the drawn pixel at each position, or -1 for none. A margin avoids indices outside the image.
    drawn_index = np.full((height + 2 * reach, width + 2 * reach), -1, np.int32)
    drawn_index[reach : reach + height, reach : reach + width][drawn] = np.arange(int(drawn.sum()), dtype=np.int32)
    offsets = [(down, right) for down in range(-reach, reach + 1) for right in range(-reach, reach + 1)]
    offsets = sorted((each for each in offsets if np.hypot(*each) <= distance), key=lambda each: float(np.hypot(*each)))
    indices = np.stack([drawn_index[rows + reach + down, columns + reach + right] for down, right in offsets], 1)
    is_drawn = indices >= 0
    all_reachable, ends = indices[is_drawn].tolist(), is_drawn.sum(1).cumsum().tolist()
    return [all_reachable[start:end] for start, end in pairwise([0, *ends])]


def select_best_counts(counts: Counts) -> Counts:
    """Return the counts [4] of an image at the threshold with the best F-measure.

    `counts` [thresholds, 4] are the results of `count_matches` for the image.
    """
    best: Counts = counts[int(np.argmax(_compute_f_measure(counts)))]
    return best


def compute_scores(counts: npt.ArrayLike, at_best: npt.ArrayLike) -> Scores:
    """Compute the edge scores of all images together.

    `counts` [thresholds, 4] are the counts at each threshold, and `at_best` [4] those at each image's best threshold,
    both summed over all images.
    """
    summed = np.asarray(counts)
    f_measures = _compute_f_measure(summed)
    best = int(np.argmax(f_measures))
    return Scores(
        ods=float(f_measures[best]),
        ois=float(_compute_f_measure(np.asarray(at_best)[None])[0]),
        ap=_compute_average_precision(summed),
        threshold=float(THRESHOLDS[best]),
    )


def compute_recall_and_precision(counts: Floats | Counts) -> tuple[Floats, Floats]:
    """Return the recall and precision at each threshold, given counts [thresholds, 4]."""
    recall = counts[:, MATCHED_ANNOTATED] / np.maximum(counts[:, ANNOTATED], 1)
    precision = counts[:, MATCHED_PREDICTED] / np.maximum(counts[:, PREDICTED], 1)
    return recall, precision


def _compute_f_measure(counts: Floats | Counts) -> Floats:
    """Return the F measure at each threshold, given counts [thresholds, 4]."""
    recall, precision = compute_recall_and_precision(counts)
    f_measure: Floats = 2 * recall * precision / np.maximum(recall + precision, 1e-12)
    return f_measure


def _compute_average_precision(counts: Floats | Counts) -> float:
    """Return the area under the precision-recall curve, in steps of 0.01 as in the BSDS500 benchmark.

    `counts` [thresholds, 4] are the sums of the results of `count_matches` over all images.
    """
    recall, precision = compute_recall_and_precision(counts)
    recalls, first = np.unique(recall, return_index=True)
    if len(recalls) < 2:  # a single point has no area below it
        return 0.0
    interpolated = np.interp(np.arange(101) / 100, recalls, precision[first], left=0, right=0)
    return float(interpolated.sum() / 100)
