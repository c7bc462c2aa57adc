"""Image classification: one class per image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.contract.job import Job
from engine.data.decoding.idx import Bytes
from engine.data.transforms.device_transforms import Statistics
from engine.metrics import calibration
from engine.metrics.base import Metric
from engine.metrics.calibration import FittedTemperature
from engine.metrics.class_counts import ClassCounts, ClassValues, compute_balanced_weights, compute_class_scores
from engine.models import classification_models, registry, timm_models, torchvision_models
from engine.models.base import ModelInfo
from engine.models.encoders import IMAGENET
from engine.models.weights import create_torchvision_source, format_published_accuracy
from engine.tasks.analysis import SampleColumns
from engine.tasks.base import DatasetInfo, Objective, Task, Visualization
from engine.tasks.classification.entry import TASK
from engine.tasks.explanation import Target, create_class_targets
from engine.tasks.label_analysis import LabelAnalysis, Predictions
from engine.tasks.mixing import has_mixed_targets
from engine.tasks.predictions import Labels, LabelScores

IMAGENET_CLASSES = 1000
"""Number of ImageNet classes, which the catalogue's models are designed for."""

_TOP_K = 5
"""Number of most likely classes among which the top-5 accuracy looks for the true class."""
_SUMS = 4
"""Number of values in `ClassificationMetric.counters` before the counters of `ClassCounts`."""

MNIST: Statistics = ((0.1307,), (0.3081,))
"""Mean and standard deviation of MNIST images in PyTorch's example, on which the model `mnist_cnn` is based."""


class ClassificationMetric(Metric):
    """Top-1 accuracy, top-5 accuracy of more than five classes, loss, and class counts.

    `counters` hold the number of samples, the number of samples whose first prediction is correct, the number of
    samples with the correct class among the first five predictions, the sum of the losses, and the counters of
    `ClassCounts`. Targets are int64 [n], or class fractions [n, C]. The class with the largest fraction is then the
    true class.
    """

    def __init__(self, classes: int) -> None:
        self._classes, self._counts = classes, ClassCounts(classes)
        self.counters = torch.zeros(_SUMS + self._counts.length, dtype=torch.float64)

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Count the correct predictions, losses and classes of a batch of logits [n, C]."""
        true = targets.argmax(1) if targets.dim() == 2 else targets
        losses = functional.cross_entropy(outputs.float(), true, reduction="none")
        top_classes = outputs.topk(min(_TOP_K, outputs.shape[1]), dim=1).indices
        is_correct = top_classes == true[:, None]
        batch_sums = torch.stack([torch.ones_like(losses), is_correct[:, 0], is_correct.any(1), losses]).double().sum(1)
        class_counts = self._counts.count_batch(true, top_classes[:, 0])
        self.counters = self.counters.to(batch_sums.device) + torch.cat([batch_sums, class_counts])

    def compute(self) -> dict[str, float]:
        """Return the accuracies and the mean loss over all samples by metric id, or {} without samples."""
        count, top1, top5, loss = self.counters[:_SUMS].tolist()
        if not count:
            return {}
        accuracies = {"top1": top1 / count, "top5": top5 / count}
        if self._classes <= _TOP_K:
            del accuracies["top5"]
        return accuracies | {"loss": loss / count}

    def per_class(self) -> dict[str, ClassValues]:
        return compute_class_scores(*self._counts.split_counts(self.counters[_SUMS:]))

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        return self._counts.confusion(self.counters[_SUMS:])


class Classification(Task):
    entry = TASK.entry

    def list_models(self) -> tuple[str, ...]:
        return (*classification_models.list_names(), *timm_models.list_names())

    def describe_model(self, model: str) -> ModelInfo:
        title, family = classification_models.get_title_and_family(model)
        size = classification_models.get_default_image_size(model)
        min_size = classification_models.get_min_image_size(model)
        if model == classification_models.MNIST_CNN:
            return ModelInfo(title, family, size, min_size, classes=10, channels=1)
        step = torchvision_models.PATCH_SIZES.get(model, 1)
        info = ModelInfo(title, family, size, min_size, IMAGENET_CLASSES, image_size_step=step)
        pretrained = () if timm_models.is_timm(model) else torchvision_models.list_pretrained_weights(model)
        if not pretrained:
            return info
        return info._replace(
            weights=create_torchvision_source(pretrained[0]), published=format_published_accuracy(pretrained[0])
        )

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        return classification_models.build(job, classes, channels, self.get_image_size(job))

    def get_image_size(self, job: Job) -> int:
        return registry.get_image_size(job, classification_models.get_default_image_size(job.model.name))

    def get_statistics(self, job: Job) -> Statistics:
        return classification_models.get_statistics(job.model.name) or IMAGENET

    def get_normalization(self, job: Job, channels: int) -> Statistics:
        """Return the statistics of the model's weights or, for gray images of `mnist_cnn`, those of MNIST."""
        if job.model.name == classification_models.MNIST_CNN and channels == 1:
            return MNIST
        return super().get_normalization(job, channels)

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        is_balanced = job.training.class_weights == "balanced"
        return ClassificationObjective(
            dataset_info.classes,
            job.training.label_smoothing,
            compute_balanced_weights(dataset_info.class_counts()) if is_balanced else None,
            mixed=has_mixed_targets(job),
            binary=job.training.loss == "bce",
        )


class ClassAnalysis(LabelAnalysis):
    """Analysis for a task with one class per image."""

    def compute_columns(self, outputs: Tensor, targets: Tensor) -> SampleColumns:
        """Return the probabilities of the classes, and the most probable class of each image."""
        probabilities = outputs.float().softmax(1)
        confidence, predicted = probabilities.max(1)
        true = targets.argmax(1) if targets.dim() == 2 else targets
        return SampleColumns(
            correct=(predicted == true).double().tolist(),
            true=[(number,) for number in true.tolist()],
            predicted=[(number,) for number in predicted.tolist()],
            confidence=confidence.tolist(),
            probabilities=probabilities.cpu().numpy(),
        )

    def convert_to_predictions(self, columns: SampleColumns) -> Predictions:
        confidence, correct = np.array(columns.confidence, np.float64), np.array(columns.correct, np.float64)
        return Predictions(confidence, correct, per_sample=1, positives=float(len(correct)))

    def fit_temperature(self, columns: SampleColumns) -> FittedTemperature | None:
        assert columns.probabilities is not None
        return calibration.fit_temperature(columns.probabilities, np.array(columns.true, np.int64).ravel())


class ClassificationObjective(Objective):
    """Objective for one class per image, with cross entropy as the loss.

    Args:
        classes: Names of the classes.
        smoothing: Label smoothing (Szegedy et al. 2016, section 7).
        weights: Weight of each class, [C], or None for equal weights.
        mixed: True if images are mixed, so that targets are class fractions, [n, C].
        binary: True to use the mean of the classes' binary cross entropies as the loss (Wightman et al. 2021, section
            2.2). It equals timm's BinaryCrossEntropy after timm's Mixup, which also smooths mixed targets.
    """

    entry = Classification.entry
    analysis_type = ClassAnalysis

    def __init__(
        self,
        classes: Sequence[str],
        smoothing: float = 0.0,
        weights: Tensor | None = None,
        *,
        mixed: bool = False,
        binary: bool = False,
    ) -> None:
        self._binary = binary  # the loss is the mean of the classes' binary cross entropies
        self._classes = classes
        self._smoothing = smoothing
        self._weights = weights  # of the classes, [C]
        self._mixed = mixed  # targets are class fractions, [n, C]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image, [n]. Moves the class weights to the device of the outputs."""
        if self._weights is not None:
            self._weights = self._weights.to(outputs.device)  # once, since a copy blocks the host
        if self._binary:
            classes = outputs.shape[1]
            fractions = targets if self._mixed else functional.one_hot(targets, classes).float()
            smoothed = fractions * (1 - self._smoothing) + self._smoothing / classes
            losses = functional.binary_cross_entropy_with_logits(
                outputs.float(), smoothed, self._weights, reduction="none"
            )
            return losses.mean(1)
        return functional.cross_entropy(
            outputs.float(), targets, self._weights, reduction="none", label_smoothing=self._smoothing
        )

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the number of correct samples. For a mixed image, this is the fraction of its predicted class."""
        predicted = outputs.argmax(1)
        return targets.gather(1, predicted[:, None]).sum() if self._mixed else (predicted == targets).sum()

    def create_metric(self) -> Metric:
        return ClassificationMetric(len(self._classes))

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        """Return class fractions of 0 if images are mixed, otherwise the first class for each image."""
        if self._mixed:
            return torch.zeros((len(inputs), len(self._classes)), device=inputs.device)
        return torch.zeros(len(inputs), dtype=torch.int64, device=inputs.device)

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        return Visualization(image, self._classes[int(target.argmax() if target.dim() else target)])

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        probabilities = self.compute_scores(output, 0).probabilities.numpy()
        return Visualization(image, Labels(classes=tuple(self._classes), probabilities=probabilities).text)

    def compute_scores(self, output: Tensor, size: int) -> LabelScores:
        return LabelScores(output.float().softmax(0))

    def select_explanation_targets(
        self, outputs: Any, classes: Sequence[str], requested: Sequence[int], size: int
    ) -> list[Target]:
        return create_class_targets(outputs[0], outputs[0].detach().softmax(0), classes, requested)
