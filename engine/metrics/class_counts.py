"""How often each class was found for each other: what the measures of classes are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MOST_CONFUSED = 64
"""The most classes for a whole confusion matrix; with more, only each class's correct, true and predicted samples are
counted."""

Shares = tuple[float | None, ...]


def pairs_of(true: Tensor, found: Tensor, classes: int) -> Tensor:
    """A row for each true class of how often each class was found, float64 [classes, classes], of int64 [n] each, on
    their device. Adding ones, unlike torch.bincount, does not wait for a GPU to learn how many there are.
    """
    counts = torch.zeros(classes * classes, dtype=torch.float64, device=true.device)
    return counts.index_add_(0, true * classes + found, torch.ones_like(true, dtype=torch.float64)).view(classes, -1)


class ClassCounts:
    """Of `classes` how often each was right, true and found, and their confusion where there are not too many of
    them.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.whole = classes <= MOST_CONFUSED

    @property
    def length(self) -> int:
        """How many numbers `of` gives."""
        return self.classes**2 if self.whole else 3 * self.classes

    def of(self, true: Tensor, found: Tensor) -> Tensor:
        """The counts of samples int64 [n], which are added up, float64 [length]."""
        if self.whole:
            return pairs_of(true, found, self.classes).flatten()
        counts = torch.zeros((3, self.classes), dtype=torch.float64, device=true.device)
        for row, (which, each) in enumerate(((true, true == found), (true, None), (found, None))):
            ones = torch.ones_like(which, dtype=torch.float64) if each is None else each.double()
            counts[row].index_add_(0, which, ones)
        return counts.flatten()

    def sums(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each class how often it was right, true and found, float64 [classes]."""
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
    """Precision, recall and F1 of each class (van Rijsbergen 1979, chapter 7, with equal weights); None where a class
    neither occurs nor is found.
    """
    return {
        "Precision": shares(right, found),
        "Recall": shares(right, true),
        "F1": shares(2 * right, true + found),
    }


def balanced_weights(counts: Sequence[float]) -> Tensor:
    """What each class counts in the loss so that all count alike together: inverse to how often it occurs, 1 in the
    mean over the samples (King and Zeng 2001, scikit-learn's "balanced"); a class that does not occur counts 1.
    float32 [C].
    """
    there = torch.tensor(counts, dtype=torch.float64)
    occurring = there > 0
    weights = torch.ones_like(there)
    weights[occurring] = there.sum() / (occurring.sum() * there[occurring])
    return weights.float()


def presence_weights(counts: Sequence[float], samples: int) -> Tensor:
    """What having a label counts beside not having it, so that both count alike together: how many samples lack it for
    each that has it (the `pos_weight` of torch's BCEWithLogitsLoss), 1 for one that all have or none. float32 [C].
    """
    there = torch.tensor(counts, dtype=torch.float64)
    tells = (there > 0) & (there < samples)
    return torch.where(tells, (samples - there) / there.clamp(min=1), 1.0).float()


def softened_weights(counts: Sequence[float]) -> Tensor:
    """The same for pixels, of which there may be thousands of times as many of one class: 1 / ln(1.02 + share), at
    most 50 to 1 (Paszke et al. 2016, ENet, section 4), and 1 in the mean over the pixels. float32 [C].
    """
    there = torch.tensor(counts, dtype=torch.float64)
    share = there / there.sum().clamp(min=1)
    weights = 1 / torch.log(1.02 + share)
    mean = (weights * share).sum()
    return (weights / mean if mean else torch.ones_like(weights)).float()
