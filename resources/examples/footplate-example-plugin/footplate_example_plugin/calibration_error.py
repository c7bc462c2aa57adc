"""A metric: the expected calibration error of a classifier (Guo et al. 2017, On Calibration of Modern Neural Networks)."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.metrics.registry import AddedMetric

BINS = 15
"""Number of bins of confidences (Guo et al. 2017)."""


def sums(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of each bin the number of images, the sum of their confidences, and how many are right, [3 * BINS]."""
    true = targets.argmax(1) if targets.dim() == 2 else targets
    confidence, found = outputs.softmax(1).max(1)
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    rows = torch.stack([torch.ones_like(confidence), confidence, (found == true).to(confidence.dtype)])
    return torch.zeros(3, BINS, dtype=torch.float64, device=outputs.device).index_add_(1, bins, rows.double()).flatten()


def value(collected: Tensor) -> float:
    """Return the mean distance of confidence and accuracy, weighted by the images per bin."""
    count, confidence, right = collected.view(3, BINS)
    return float((confidence - right).abs().sum() / count.sum())


CALIBRATION_ERROR = AddedMetric(
    "Calibration error", ("classification",), 3 * BINS, sums, value, higher_is_better=False, percent=True
)
