"""Counts of true and predicted classes, and loss weights from class frequencies."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MOST_CONFUSED = 64
"""The most classes for a whole confusion matrix; with more, only each class's correct, true and predicted samples are
counted."""

Shares = tuple[float | None, ...]


def pairs_of(true: Tensor, found: Tensor, classes: int) -> Tensor:
    """Return how often each class was predicted for each true class, float64 [classes, classes], on the tensors' device.

    Adding ones, unlike torch.bincount, needs no synchronization with a GPU.
    """
    counts = torch.zeros(classes * classes, dtype=torch.float64, device=true.device)
    return counts.index_add_(0, true * classes + found, torch.ones_like(true, dtype=torch.float64)).view(classes, -1)


class ClassCounts:
    """Counts of correct, true and predicted samples of each class, with their confusion unless there are too many classes."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.whole = classes <= MOST_CONFUSED

    @property
    def length(self) -> int:
        """Number of values that `of` returns."""
        return self.classes**2 if self.whole else 3 * self.classes

    def of(self, true: Tensor, found: Tensor) -> Tensor:
        """Return the counts of samples int64 [n], float64 [length]; counts of several batches can be added."""
        if self.whole:
            return pairs_of(true, found, self.classes).flatten()
        counts = torch.zeros((3, self.classes), dtype=torch.float64, device=true.device)
        for row, (which, each) in enumerate(((true, true == found), (true, None), (found, None))):
            ones = torch.ones_like(which, dtype=torch.float64) if each is None else each.double()
            counts[row].index_add_(0, which, ones)
        return counts.flatten()

    def sums(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return how often each class was correct, true and predicted, float64 [classes]."""
        if self.whole:
            matrix = counts.view(self.classes, self.classes)
            return matrix.diag(), matrix.sum(1), matrix.sum(0)
        right, true, found = counts.view(3, self.classes)
        return right, true, found

    def confusion(self, counts: Tensor) -> tuple[tuple[int, ...], ...]:
        if not self.whole:
            return ()
        return tuple(tuple(int(each) for each in row) for row in counts.view(self.classes, -1).tolist())


def shares(parts: Tensor, wholes: Tensor) -> Shares:
    """Each part of its whole, None of a whole of nothing."""
    pairs: Sequence[tuple[float, float]] = list(zip(parts.tolist(), wholes.tolist(), strict=True))
    return tuple(part / whole if whole else None for part, whole in pairs)


def of_classes(right: Tensor, true: Tensor, found: Tensor) -> dict[str, Shares]:
    """Return precision, recall and F1 of each class; None if a class neither occurs nor is predicted.

    F1 has equal weights (van Rijsbergen 1979, chapter 7).
    """
    return {
        "Precision": shares(right, found),
        "Recall": shares(right, true),
        "F1": shares(2 * right, true + found),
    }


def balanced_weights(counts: Sequence[float]) -> Tensor:
    """Return loss weights that give all classes the same total weight, float32 [C].

    They are inverse to the frequencies, with a mean of 1 over the samples (King and Zeng 2001; scikit-learn's "balanced").
    A class that does not occur has weight 1.
    """
    there = torch.tensor(counts, dtype=torch.float64)
    occurring = there > 0
    weights = torch.ones_like(there)
    weights[occurring] = there.sum() / (occurring.sum() * there[occurring])
    return weights.float()


def presence_weights(counts: Sequence[float], samples: int) -> Tensor:
    """Return weights of having a label, such that having and lacking it have the same total weight, float32 [C].

    It is the number of samples that lack the label for each that has it (`pos_weight` of torch's BCEWithLogitsLoss), and 1
    for a label that all samples or none have.
    """
    there = torch.tensor(counts, dtype=torch.float64)
    tells = (there > 0) & (there < samples)
    return torch.where(tells, (samples - there) / there.clamp(min=1), 1.0).float()


def softened_weights(counts: Sequence[float]) -> Tensor:
    """Return loss weights of pixels by class, float32 [C]: 1 / ln(1.02 + fraction), with a mean of 1 over the pixels.

    The largest is at most 50 times the smallest, although one class may have thousands of times as many pixels (Paszke et
    al. 2016, ENet, section 4).
    """
    there = torch.tensor(counts, dtype=torch.float64)
    share = there / there.sum().clamp(min=1)
    weights = 1 / torch.log(1.02 + share)
    mean = (weights * share).sum()
    return (weights / mean if mean else torch.ones_like(weights)).float()
