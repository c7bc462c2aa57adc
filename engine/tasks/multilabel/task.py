"""Multi-label classification: any number of labels per image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.job import Job
from engine.data.decoding.idx import Bytes
from engine.metrics import calibration
from engine.metrics.base import Metric
from engine.metrics.calibration import FittedTemperature
from engine.metrics.class_counts import ClassValues, compute_class_scores, compute_presence_weights
from engine.metrics.label_curves import RankedScores, average_precision
from engine.tasks.analysis import SampleColumns
from engine.tasks.base import DatasetInfo, Objective, Visualization
from engine.tasks.classification.task import Classification
from engine.tasks.explanation import Target, create_class_targets
from engine.tasks.label_analysis import LabelAnalysis, Predictions, make_true_class_mask
from engine.tasks.multilabel.entry import TASK
from engine.tasks.predictions import Labels, LabelScores

THRESHOLD = 0.5
"""Minimum probability of a label that counts as predicted."""
_SUMS = 3
"""Number of values in `MultiLabelMetric.counters` before the counters of the labels."""


class MultiLabelMetric(Metric):
    """Average precision, F1, sample accuracy and loss for labels.

    `counters` are the number of samples, the sum of the losses, the sum of the samples' accuracies, and the numbers of
    samples in which each label is correct, true, and predicted. `rows` hold, for each sample, the scores of the labels,
    followed by 1 for each true label and 0 for each other label.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.counters = torch.zeros(_SUMS + 3 * classes, dtype=torch.float64)
        self.rows = torch.empty((0, 2 * classes), dtype=torch.float64)

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add the losses, accuracies and label counts of a batch to `counters`, and its probabilities to `rows`."""
        probabilities, true = outputs.float().sigmoid(), targets > 0.5
        predicted = probabilities >= THRESHOLD
        losses = functional.binary_cross_entropy_with_logits(outputs.float(), targets, reduction="none").mean(1)
        sums = torch.stack([torch.ones_like(losses), losses, _compute_accuracies(predicted, true)]).double().sum(1)
        label_counts = torch.stack([predicted & true, true, predicted]).double().sum(1).flatten()
        self.counters = self.counters.to(outputs.device) + torch.cat([sums, label_counts])
        self.add_rows(torch.cat([probabilities, true], dim=1).double())

    def compute(self) -> dict[str, float]:
        """Return the metrics by id, or {} without samples. mAP and mean F1 are means over the labels that occur."""
        count, loss_sum, accuracy_sum = self.counters[:_SUMS].tolist()
        if not count:
            return {}
        precisions = [each for each in self._compute_average_precisions() if each is not None]
        correct, true, predicted = self._split_label_counts()
        is_present = true > 0
        f1 = (2 * correct / (true + predicted))[is_present]
        return {
            "map": float(np.mean(precisions)) if precisions else 0.0,
            "mean_f1": float(f1.mean()) if len(f1) else 0.0,
            "accuracy": accuracy_sum / count,
            "loss": loss_sum / count,
        }

    def per_class(self) -> dict[str, ClassValues]:
        return {"AP": self._compute_average_precisions()} | compute_class_scores(*self._split_label_counts())

    def _compute_average_precisions(self) -> ClassValues:
        """Return the average precision of each label, or None for a label that no sample has."""
        scores, true = np.split(self.rows.cpu().numpy(), 2, axis=1)
        return tuple(
            average_precision(RankedScores(scores[:, number], true[:, number] > 0).compute_counts())
            for number in range(self._classes)
        )

    def _split_label_counts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers of samples in which each label is correct, true, and predicted, [C] each."""
        correct, true, predicted = self.counters[_SUMS:].view(3, self._classes)
        return correct, true, predicted


def _compute_accuracies(predicted: Tensor, true: Tensor) -> Tensor:
    """Return the accuracy of each sample, [n], for predicted and true labels, bool [n, C].

    This is the fraction of the labels that are both predicted and true, among those that are predicted or true. It is 1
    for a sample without such labels (Godbole and Sarawagi 2004).
    """
    union = (predicted | true).sum(1)
    return torch.where(union > 0, (predicted & true).sum(1) / union.clamp(min=1), 1.0)


class MultiLabel(Classification):
    """Multi-label classification with the models of image classification, which return one score for each label."""

    entry = TASK.entry

    def list_models(self) -> tuple[str, ...]:
        return ()

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        weights = None
        if job.training.class_weights == "balanced":
            weights = compute_presence_weights(dataset_info.class_counts(), dataset_info.samples)
        return MultiLabelObjective(dataset_info.classes, job.training.label_smoothing, weights)


class MultiLabelAnalysis(LabelAnalysis):
    """Analysis for a task with any number of labels per image."""

    def compute_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """Return the true and predicted labels of each sample, and their intersection over union as its correctness.

        The confidence of a sample is the confidence of its least certain label.
        """
        probabilities, true = outputs.float().sigmoid(), targets > 0.5
        predicted = probabilities >= THRESHOLD
        label_confidences = probabilities.where(predicted, 1 - probabilities).amin(1)
        return SampleColumns(
            correct=_compute_accuracies(predicted, true).double().tolist(),
            true=[tuple(row.nonzero().flatten().tolist()) for row in true.cpu()],
            predicted=[tuple(row.nonzero().flatten().tolist()) for row in predicted.cpu()],
            confidence=label_confidences.tolist(),
            probabilities=probabilities.cpu().numpy(),
        )

    def convert_to_predictions(self, columns: SampleColumns) -> Predictions:
        """Return each label of each sample as a separate prediction."""
        assert columns.probabilities is not None
        assert columns.true is not None
        is_true = make_true_class_mask(columns.true, len(self.classes)).ravel().astype(np.float64)
        confidence = columns.probabilities.ravel().astype(np.float64)
        return Predictions(confidence, is_true, per_sample=len(self.classes), positives=float(is_true.sum()))

    def fit_temperature(self, columns: SampleColumns) -> FittedTemperature | None:
        """Fit the temperature that calibrates the labels' probabilities. Return None if there are too few samples."""
        assert columns.probabilities is not None
        assert columns.true is not None
        return calibration.fit_temperature_of_labels(
            columns.probabilities, make_true_class_mask(columns.true, len(self.classes))
        )


class MultiLabelObjective(Objective):
    """Objective for independent labels, with the mean of their binary cross entropies as the loss.

    Targets are float32 [n, C], 0 or 1, or fractions if images are mixed. `smoothing` moves them towards 0.5. `weights`
    [C] are the weights of positive targets, or None for equal weights.
    """

    entry = MultiLabel.entry
    analysis_type = MultiLabelAnalysis
    score_threshold = THRESHOLD

    def __init__(self, classes: Sequence[str], smoothing: float = 0.0, weights: Tensor | None = None) -> None:
        self._classes = classes
        self._smoothing = smoothing
        self._weights = weights

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the binary cross-entropy of each image, averaged over the classes, [n].

        Targets are moved by `smoothing` towards 0.5. Moves the class weights to the device of the outputs.
        """
        if self._smoothing:
            targets = targets * (1 - self._smoothing) + self._smoothing / 2
        if self._weights is not None:
            self._weights = self._weights.to(outputs.device)  # once, since a copy blocks the host
        return functional.binary_cross_entropy_with_logits(
            outputs.float(), targets, reduction="none", pos_weight=self._weights
        ).mean(1)

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return _compute_accuracies(outputs.float().sigmoid() >= THRESHOLD, targets > 0.5).sum()

    def create_metric(self) -> Metric:
        return MultiLabelMetric(len(self._classes))

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        return torch.zeros((len(inputs), len(self._classes)), device=inputs.device)

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        numbers: list[int] = (target > 0.5).nonzero().flatten().tolist()
        return Visualization(image, ", ".join(self._classes[number] for number in numbers) or "no label")

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """Return the unchanged image with the names of its predicted labels."""
        probabilities = self.compute_scores(output, 0).probabilities.numpy()
        prediction = Labels(
            classes=tuple(self._classes), probabilities=probabilities, is_multilabel=True, threshold=THRESHOLD
        )
        return Visualization(image, prediction.text)

    def compute_scores(self, output: Tensor, size: int) -> LabelScores:
        return LabelScores(output.float().sigmoid(), is_multilabel=True)

    def select_explanation_targets(
        self, outputs: Any, classes: Sequence[str], requested: Sequence[int], size: int
    ) -> list[Target]:
        return create_class_targets(outputs[0], outputs[0].detach().sigmoid(), classes, requested)
