"""Metrics for predicted lines by area, center line and direction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engine.data.decoding.mask_values import NO_CLASS
from engine.metrics.base import Metric
from engine.metrics.class_counts import ClassValues, compute_ratios
from engine.tasks.roads.directions import DIRECTIONS, LINE, STEP, Mask, find_center_lines

SLACK = 3
"""Tolerance between predicted and true center lines, in rows and columns of the image that the model receives.

Mnih & Hinton 2010 (section 4) use the same number of pixels, and so does the code by Batra et al. 2019 (`relaxed_f1`).
"""
TOLERANCE = 10.0
"""Tolerance for a direction in degrees: the width of a class in Batra et al. 2019."""

_CONFUSION = slice(2, 6)
_CENTER_LINES = slice(6, 10)
_DIRECTIONS = slice(10, 12)


class RoadMetric(Metric):
    """Metrics for lines by area, center line and direction.

    `counters` hold, in this order: the sum of the losses and the number of images; the confusion matrix of pixels, with
    a row per true class; the counts of `_count_center_lines`; and the counts of `_count_directions`.

    Args:
        losses: Function that returns the loss of each image, [n], for outputs and targets.
        scores: Function that extracts two tensors of scores from outputs, given the side of the images in pixels: the
            scores of the classes, [n, 2, h, w], and those of 36 angles and "no direction", [n, 37, h, w].
    """

    def __init__(
        self, losses: Callable[[Tensor, Tensor], Tensor], scores: Callable[[Tensor, int], tuple[Tensor, Tensor]]
    ) -> None:
        self.counters = torch.zeros(2 + 4 + 4 + 2, dtype=torch.float64)
        self._losses = losses
        self._scores = scores

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add the losses, pixels, center lines and directions of a batch to `counters`."""
        losses = self._losses(outputs, targets).double()
        class_scores, direction_scores = self._scores(outputs, targets.shape[-1])
        true, true_directions = targets.unbind(1)
        predicted = class_scores.argmax(1)
        has_class = true != NO_CLASS
        sums = torch.stack([losses.sum(), torch.full_like(losses[0], len(losses))])
        confusion = torch.bincount(true[has_class] * 2 + predicted[has_class], minlength=4)
        center_line_counts = _count_center_lines(
            ((predicted == LINE) & has_class).cpu().numpy(), (true == LINE).cpu().numpy()
        )
        direction_counts = _count_directions(direction_scores[:, :DIRECTIONS].argmax(1), true_directions)
        added = torch.cat([sums, confusion.double(), center_line_counts.to(sums), direction_counts.double()])
        self.counters = self.counters.to(outputs.device) + added

    def compute(self) -> dict[str, float]:
        """Return the metrics of lines, center lines and directions by id, or {} without images."""
        loss_sum, images = self.counters[:2].tolist()
        if not images:
            return {}
        precision, recall = self.compute_relaxed_scores()
        with_direction, correct = self.counters[_DIRECTIONS].tolist()
        per_class = self.per_class()
        return {
            "iou": per_class["IoU"][LINE] or 0.0,
            "relaxed_iou": _divide_or_zero(precision * recall, precision + recall - precision * recall),
            "f1": per_class["F1"][LINE] or 0.0,
            "orientation": _divide_or_zero(correct, with_direction),
            "loss": loss_sum / images,
        }

    def compute_relaxed_scores(self) -> tuple[float, float]:
        """Return the precision and recall of center lines.

        The precision is the fraction of predicted center line pixels near a true center line, and the recall is the
        fraction of true center line pixels near a predicted center line.
        """
        predicted, predicted_near, true, true_near = self.counters[_CENTER_LINES].tolist()
        return _divide_or_zero(predicted_near, predicted), _divide_or_zero(true_near, true)

    def per_class(self) -> dict[str, ClassValues]:
        """Return the IoU and the F1 score of background and road, in this order, keyed by "IoU" and "F1"."""
        confusion = self.counters[_CONFUSION].reshape(2, 2)
        correct, true_and_predicted = confusion.diag(), confusion.sum(0) + confusion.sum(1)
        return {
            "IoU": compute_ratios(correct, true_and_predicted - correct),
            "F1": compute_ratios(2 * correct, true_and_predicted),
        }

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        rows = self.counters[_CONFUSION].reshape(2, 2).long().tolist()
        return tuple(map(tuple, rows))


def _divide_or_zero(count: float, total: float) -> float:
    """Return `count` divided by `total`, or 0 if the total is 0."""
    return count / total if total else 0.0


def _count_center_lines(predicted: Mask, true: Mask) -> Tensor:
    """Count the center line pixels in predicted and true masks of lines, [n, h, w].

    The four counts are: predicted pixels, predicted pixels near a true one, true pixels, and true pixels near a
    predicted one.
    """
    from scipy.ndimage import binary_dilation

    counts = np.zeros(4)
    tolerance = np.ones((2 * SLACK + 1, 2 * SLACK + 1), bool)
    for predicted_lines, true_lines in zip(predicted, true, strict=True):
        predicted_center, true_center = find_center_lines(predicted_lines), find_center_lines(true_lines)
        predicted_near = predicted_center & binary_dilation(true_center, tolerance)
        true_near = true_center & binary_dilation(predicted_center, tolerance)
        counts += [each.sum() for each in (predicted_center, predicted_near, true_center, true_near)]
    return torch.from_numpy(counts)


def _count_directions(predicted: Tensor, true: Tensor) -> Tensor:
    """Return the number of pixels with a true direction, and how many of them have the correct predicted direction.

    Both arguments are direction classes. A pixel counts even if no line is predicted there.
    """
    has_direction = true < DIRECTIONS
    difference = (predicted - true).abs()
    difference = torch.minimum(difference, DIRECTIONS - difference)  # directions are circular
    is_correct = has_direction & (difference * STEP <= TOLERANCE)
    return torch.stack([has_direction.sum(), is_correct.sum()])
