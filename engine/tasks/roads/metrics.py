"""Metrics for predicted lines by area, center line and direction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engine.data.decoding.mask_values import NO_CLASS
from engine.metrics.base import Metric
from engine.tasks.roads.directions import DIRECTIONS, LINE, STEP, Mask, thin

SLACK = 3
"""Tolerance between predicted and true center lines, in rows and columns of the image that the model receives.

Mnih & Hinton 2010 (section 4) use the same number of pixels, and so does the code by Batra et al. 2019 (`relaxed_f1`).
"""
TOLERANCE = 10.0
"""Tolerance for a direction in degrees: the width of a class in Batra et al. 2019."""

_CONFUSION = slice(2, 6)
_MIDDLES = slice(6, 10)
_DIRECTED = slice(10, 12)


class RoadMetric(Metric):
    """Metrics for lines by area, center line and direction.

    `counters` hold, in this order: the sum of the losses and the number of images; the confusion matrix of pixels, with
    a row per true class; the counts of `_middles`; and the counts of `_directed`.

    Args:
        losses: Function that returns the loss of each image, [n], for outputs and targets.
        scores: Function that returns the full-size scores of the classes, [n, 2, h, w], and of the directions, [n, 37,
            h, w], for outputs and targets.
    """

    def __init__(
        self, losses: Callable[[Tensor, Tensor], Tensor], scores: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    ) -> None:
        self.counters = torch.zeros(12, dtype=torch.float64)
        self._losses = losses
        self._scores = scores

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Count losses, pixels, middle lines and directions of a batch."""
        if not len(targets):
            return
        losses = self._losses(outputs, targets).double()
        class_scores, direction_scores = self._scores(outputs, targets)
        true, along = targets.unbind(1)
        found = class_scores.argmax(1)
        counted = true != NO_CLASS
        sums = torch.stack([losses.sum(), torch.full_like(losses[0], len(losses))])
        confusion = torch.bincount(true[counted] * 2 + found[counted], minlength=4)
        middles = _middles(((found == LINE) & counted).cpu().numpy(), (true == LINE).cpu().numpy())
        directed = _directed(direction_scores[:, :DIRECTIONS].argmax(1), along)
        added = torch.cat([sums, confusion.double(), middles.to(sums), directed.double()])
        self.counters = self.counters.to(outputs.device) + added

    def compute(self) -> dict[str, float]:
        """Return the metrics, or {} without images."""
        loss, images = self.counters[:2].tolist()
        if not images:
            return {}
        precision, recall = self.relaxed()
        directed, correct = self.counters[_DIRECTED].tolist()
        per_class = self.per_class()
        return {
            "iou": per_class["IoU"][LINE] or 0.0,
            "relaxed_iou": _ratio(precision * recall, precision + recall - precision * recall),
            "f1": per_class["F1"][LINE] or 0.0,
            "orientation": _ratio(correct, directed),
            "loss": loss / images,
        }

    def relaxed(self) -> tuple[float, float]:
        """Return the precision and recall of center lines.

        These are the fraction of predicted center lines near a true one, and the fraction of true ones near a predicted
        one.
        """
        found, found_near, true, true_near = self.counters[_MIDDLES].tolist()
        return _ratio(found_near, found), _ratio(true_near, true)

    def per_class(self) -> dict[str, tuple[float | None, ...]]:
        confusion = self.counters[_CONFUSION].reshape(2, 2)
        correct, true_and_predicted = confusion.diag(), confusion.sum(0) + confusion.sum(1)
        pairs = list(zip(correct.tolist(), true_and_predicted.tolist(), strict=True))
        return {
            "IoU": tuple(_ratio(correct, total - correct) if total else None for correct, total in pairs),
            "F1": tuple(_ratio(2 * correct, total) if total else None for correct, total in pairs),
        }

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        rows = self.counters[_CONFUSION].reshape(2, 2).long().tolist()
        return tuple(map(tuple, rows))


def _ratio(count: float, total: float) -> float:
    return count / total if total else 0.0


def _middles(found: Mask, true: Mask) -> Tensor:
    """Count the center line pixels in predicted and true masks of lines, [n, h, w].

    The four counts are: predicted pixels, predicted pixels near a true one, true pixels, and true pixels near a
    predicted one.
    """
    from scipy.ndimage import binary_dilation

    counts = np.zeros(4)
    tolerance = np.ones((2 * SLACK + 1, 2 * SLACK + 1), bool)
    for one, other in zip(found, true, strict=True):
        lines = thin(one), thin(other)
        for index, (line, against) in enumerate((lines, lines[::-1])):
            near = line & binary_dilation(against, tolerance)
            counts[2 * index : 2 * index + 2] += line.sum(), near.sum()
    return torch.from_numpy(counts)


def _directed(found: Tensor, true: Tensor) -> Tensor:
    """Return the number of pixels with a true direction, and how many of them have the correct predicted direction.

    Both arguments are direction classes. A pixel counts even if no line is predicted there.
    """
    has_direction = true < DIRECTIONS
    difference = (found - true).abs()
    difference = torch.minimum(difference, DIRECTIONS - difference)  # directions are circular
    is_correct = has_direction & (difference * STEP <= TOLERANCE)
    return torch.stack([has_direction.sum(), is_correct.sum()])
