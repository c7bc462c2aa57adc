"""Counts of true and predicted classes, and loss weights derived from the frequencies of classes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MAX_CONFUSION_CLASSES = 64
"""Maximum number of classes for counting a confusion matrix.

With more classes, only the correct, true and predicted samples of each class are counted.
"""

ClassValues = tuple[float | None, ...]
"""Value of a metric for each class, or None where it is undefined."""


def compute_confusion_matrix(true: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Return the confusion matrix of predictions, float64 [classes, classes], with a row for each true class.

    `true` and `predicted` are the true and the predicted classes, [n]. The result is on their device. `index_add_`
    counts the samples, because torch.bincount would synchronize with the GPU.
    """
    counts = torch.zeros(classes * classes, dtype=torch.float64, device=true.device)
    ones = torch.ones_like(true, dtype=torch.float64)
    return counts.index_add_(0, true * classes + predicted, ones).view(classes, -1)


class ClassCounts:
    """Counter for the correct, true and predicted samples of each class.

    With up to `MAX_CONFUSION_CLASSES` classes, it counts the entire confusion matrix.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.has_confusion = classes <= MAX_CONFUSION_CLASSES

    @property
    def length(self) -> int:
        """Number of values that `count_batch` returns."""
        return self.classes**2 if self.has_confusion else 3 * self.classes

    def count_batch(self, true: Tensor, predicted: Tensor) -> Tensor:
        """Return the counts for a batch as float64 [length]. The counts of several batches can be added.

        `true` and `predicted` are the true and the predicted classes, int64 [n].
        """
        if self.has_confusion:
            return compute_confusion_matrix(true, predicted, self.classes).flatten()
        counts = torch.zeros((3, self.classes), dtype=torch.float64, device=true.device)
        ones = torch.ones_like(true, dtype=torch.float64)
        counts[0].index_add_(0, true, (true == predicted).double())
        counts[1].index_add_(0, true, ones)
        counts[2].index_add_(0, predicted, ones)
        return counts.flatten()

    def split_counts(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers of correct, true and predicted samples of each class, each float64 [classes].

        `counts` [length] is the sum of the results of `count_batch`.
        """
        if self.has_confusion:
            matrix = counts.view(self.classes, self.classes)
            return matrix.diag(), matrix.sum(1), matrix.sum(0)
        correct, true, predicted = counts.view(3, self.classes)
        return correct, true, predicted

    def confusion(self, counts: Tensor) -> tuple[tuple[int, ...], ...]:
        """Return the confusion matrix from `counts` (see `split_counts`).

        It is () for more than `MAX_CONFUSION_CLASSES` classes, which are not counted in pairs.
        """
        if not self.has_confusion:
            return ()
        return tuple(tuple(int(each) for each in row) for row in counts.view(self.classes, -1).tolist())


def compute_ratios(counts: Tensor, totals: Tensor) -> ClassValues:
    """Return each of `counts` divided by its total, or None for a total of 0."""
    return tuple(
        count / total if total else None for count, total in zip(counts.tolist(), totals.tolist(), strict=True)
    )


def compute_class_scores(correct: Tensor, true: Tensor, predicted: Tensor) -> dict[str, ClassValues]:
    """Return the precision, recall and F1 of each class, by title.

    `correct`, `true` and `predicted` are the numbers of correct, true and predicted samples. A value is None if it is
    undefined, such as F1 for a class that neither occurs nor is predicted. F1 weights precision and recall equally (van
    Rijsbergen 1979, chapter 7).
    """
    return {
        "Precision": compute_ratios(correct, predicted),
        "Recall": compute_ratios(correct, true),
        "F1": compute_ratios(2 * correct, true + predicted),
    }


def compute_balanced_weights(counts: Sequence[float]) -> Tensor:
    """Return loss weights that give all classes the same total weight, float32 [C].

    They are inversely proportional to the frequencies `counts`, with a mean of 1 over the samples (King and Zeng 2001;
    scikit-learn's "balanced"). A class that does not occur has the weight 1.
    """
    totals = torch.tensor(counts, dtype=torch.float64)
    is_present = totals > 0
    weights = torch.ones_like(totals)
    weights[is_present] = totals.sum() / (is_present.sum() * totals[is_present])
    return weights.float()


def compute_presence_weights(counts: Sequence[float], samples: int) -> Tensor:
    """Return weights of positive targets that balance the presence and absence of each label, float32 [C].

    `counts` are the numbers of samples with each label. The weight is the number of samples without the label divided
    by the number of samples with it (`pos_weight` in torch's BCEWithLogitsLoss). It is 1 for a label that all samples
    or no samples have.
    """
    positives = torch.tensor(counts, dtype=torch.float64)
    is_informative = (positives > 0) & (positives < samples)
    return torch.where(is_informative, (samples - positives) / positives.clamp(min=1), 1.0).float()


def compute_softened_weights(counts: Sequence[float]) -> Tensor:
    """Return loss weights of classes for pixels, float32 [C], given the number of pixels of each class.

    They are 1 / ln(1.02 + fraction), with a mean of 1 over the pixels. The largest weight is at most 50 times the
    smallest, although one class may have thousands of times as many pixels as another (Paszke et al. 2016, ENet,
    section 4).
    """
    totals = torch.tensor(counts, dtype=torch.float64)
    fraction = totals / totals.sum().clamp(min=1)
    weights = 1 / torch.log(1.02 + fraction)
    mean = (weights * fraction).sum()
    return (weights / mean if mean else torch.ones_like(weights)).float()
