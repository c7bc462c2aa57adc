"""Semantic segmentation: a class for every pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.catalogue import Measure
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data.datasets.images import MaskedImages
from engine.data.datasets.open_splits import Splits
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.drawing import find_classes, mask_legend, overlay_mask
from engine.data.formats.shared.ignored_class import drop_mask_value
from engine.metrics.base import Metric
from engine.metrics.boundary_iou import BoundaryMetric
from engine.metrics.class_counts import ClassValues, compute_class_scores, compute_ratios, compute_softened_weights
from engine.models import segmentation_models
from engine.models.base import TaskError
from engine.models.registry import has_own_loss
from engine.tasks.analysis import TASK_METRIC, Analysis
from engine.tasks.base import DatasetInfo, ImageTask, Objective, Visualization
from engine.tasks.explanation import Target, create_pixel_targets
from engine.tasks.predictions import PixelScores, Scores
from engine.tasks.segmentation.entry import TASK

FOCAL_EXPONENT = 2.0
"""Exponent of the focal loss. Lin et al. 2017 found 2 to be best (section 5.1)."""
DICE_SMOOTHING = 1.0
"""Constant that keeps the Dice loss finite for a class that does not occur in an image.

Milletari et al. 2016 omit it, since their images always contain both classes.
"""


class SegmentationMetric(Metric):
    """Metric for masks: IoU, F1, pixel accuracy and loss.

    `counters` hold the sum of the losses, the number of images, and the confusion matrix of pixels, with a row per true
    class.
    """

    def __init__(self, objective: SegmentationObjective, classes: int) -> None:
        self.counters = torch.zeros(2 + classes * classes, dtype=torch.float64)
        self._objective = objective
        self._classes = classes

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add a batch of logits [n, C, h, w] to the counters. The confusion matrix leaves out unlabeled pixels."""
        predicted, true = outputs.argmax(1).flatten(), targets.flatten()
        has_class = true != NO_CLASS
        pairs = true[has_class] * self._classes + predicted[has_class]
        confusion = torch.bincount(pairs, minlength=self._classes**2).double()
        losses = self._objective.compute_plain_loss(outputs, targets)
        sums = torch.stack([losses.double().sum(), torch.full_like(losses[0], len(losses)).double()])
        self.counters = self.counters.to(outputs.device) + torch.cat([sums, confusion])

    def compute(self) -> dict[str, float]:
        """Return the metrics by id, or {} without images.

        Mean IoU and mean F1 are means over the classes that occur in masks or predictions.
        """
        loss_sum, count = self.counters[:2].tolist()
        if not count:
            return {}
        correct, true, predicted = self._count_class_pixels()
        union = true + predicted - correct
        is_present = union > 0
        return {
            "miou": _mean_or_zero(correct[is_present] / union[is_present]),
            "mean_f1": _mean_or_zero(2 * correct[is_present] / (true + predicted)[is_present]),
            "pixel_accuracy": float(correct.sum() / max(float(true.sum()), 1.0)),
            "loss": loss_sum / count,
        }

    def per_class(self) -> dict[str, ClassValues]:
        """Return the values of all classes for each metric, keyed by its title.

        A value is None for a class that neither occurs nor is predicted.
        """
        correct, true, predicted = self._count_class_pixels()
        return {"IoU": compute_ratios(correct, true + predicted - correct)} | compute_class_scores(
            correct, true, predicted
        )

    def confusion(self) -> tuple[tuple[int, ...], ...]:
        """Return the confusion matrix in pixels, with a row for each true class."""
        return tuple(tuple(map(int, row)) for row in self._matrix.tolist())

    @property
    def _matrix(self) -> Tensor:
        """Confusion matrix of pixels, [C, C], with a row for each true class."""
        return self.counters[2:].reshape(self._classes, self._classes)

    def _count_class_pixels(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the number of correct, true and predicted pixels for each class."""
        return self._matrix.diag(), self._matrix.sum(1), self._matrix.sum(0)


def _mean_or_zero(values: Tensor) -> float:
    return float(values.mean()) if len(values) else 0.0


class PixelAnalysis(Analysis):
    """Analysis of masks, which adds the IoU of their boundaries to the metrics."""

    entries = (Measure("boundary_iou", "Mean boundary IoU", higher_is_better=True, percent=True),)

    def create_metrics(self, scale: float) -> dict[str, Metric]:
        return {TASK_METRIC: self.objective.create_metric(), "boundaries": BoundaryMetric(len(self.classes))}


class Segmentation(ImageTask):
    entry = TASK.entry
    module = segmentation_models

    def prepare_splits(self, job: Job, splits: Splits) -> Splits:
        """Return the splits without the class whose mask value is the job's `ignore_value`, if it is set.

        Raises TaskError if fewer than two classes remain.
        """
        if job.data.ignore_value is None:
            return splits
        train, val = splits.train, splits.val
        assert isinstance(train, MaskedImages)
        assert isinstance(val, MaskedImages)
        meaning = drop_mask_value(train.folder, train.companions, val.companions, job.data.ignore_value)
        if isinstance(meaning, Problem):
            raise TaskError.of(meaning)
        code = meaning.code
        assert code is not None
        return splits.with_each(lambda split: split.with_code(code), classes=meaning.classes)

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        if has_own_loss(job):
            return ModelLossObjective("cross_entropy", dataset_info.classes)
        weights = None
        if job.training.class_weights == "balanced":
            weights = compute_softened_weights(dataset_info.class_counts())
        return SegmentationObjective(job.training.loss, dataset_info.classes, weights)


class SegmentationObjective(Objective):
    """Objective for the class of each pixel. Pixels with `NO_CLASS` are ignored.

    The loss of an image is the mean over its pixels.

    Args:
        loss_name: The job's `loss`: cross entropy, the focal loss (Lin et al. 2017, equation 4, without alpha), the
            Dice loss (Milletari et al. 2016, over the classes in an image), or the mean of cross entropy and Dice.
        weights: Weights of pixels by class, [C], in the cross entropy and the focal loss. The Dice loss balances the
            classes without weights.
    """

    entry = TASK.entry
    analysis_type = PixelAnalysis

    def __init__(self, loss_name: str, classes: Sequence[str], weights: Tensor | None = None) -> None:
        self.legend = mask_legend(classes)
        self._loss_name = loss_name
        self._classes = len(classes)
        self._weights = weights

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image with the class weights, [n]. Moves the weights to the device of the outputs."""
        if self._weights is not None:
            self._weights = self._weights.to(outputs.device)  # once, since a copy blocks the host
        return self._compute_loss(outputs, targets, self._weights)

    def compute_plain_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image without class weights, so that it is comparable between runs."""
        return self._compute_loss(outputs, targets, None)

    def _compute_loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss of each image, [n]. `weights` are the weights of the classes, if any."""
        match self._loss_name:
            case "focal":
                return _compute_focal_loss(outputs, targets, weights)
            case "dice":
                return _compute_dice_loss(outputs, targets)
            case "cross_entropy_dice":
                return (_compute_cross_entropy(outputs, targets, weights) + _compute_dice_loss(outputs, targets)) / 2
            case _:
                return _compute_cross_entropy(outputs, targets, weights)

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        return sum_pixel_accuracies(outputs, targets)

    def create_metric(self) -> Metric:
        return SegmentationMetric(self, self._classes)

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        return torch.zeros((len(inputs), *inputs.shape[-2:]), dtype=torch.int64, device=inputs.device)

    def show_truth(self, image: npt.NDArray[Any], target: Tensor) -> Visualization:
        return self._visualize(image, target)

    def show_prediction(self, image: npt.NDArray[Any], output: Tensor) -> Visualization:
        return self._visualize(image, output.argmax(0))

    def compute_scores(self, output: Tensor, size: int) -> Scores:
        return PixelScores(output.float().softmax(0))

    def select_explanation_targets(
        self, outputs: Any, classes: Sequence[str], requested: Sequence[int], size: int
    ) -> list[Target]:
        return create_pixel_targets(outputs[0], classes, requested)

    def _visualize(self, image: npt.NDArray[Any], classes: Tensor) -> Visualization:
        """Draw the class of each pixel, [h, w], over the image, with the legend entries of these classes."""
        mask = classes.to(torch.uint8).numpy()
        return Visualization(self._draw_classes(image, mask), legend=find_classes(mask))

    def _draw_classes(self, image: npt.NDArray[Any], plane: Bytes) -> Bytes:
        """Draw the classes in `plane` over `image` in their colors."""
        return overlay_mask(image, plane)


class ModelLossObjective(SegmentationObjective):
    """Objective for models whose forward pass returns the losses of each image in training.

    The validation loss is the cross entropy.
    """

    loss_in_model = True
    compiles = False  # the number of masks varies between steps

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image, [n].

        In training, the model outputs several losses for each image, [n, losses], which are added up.
        """
        return outputs.sum(1)

    def count_correct(self, outputs: Tensor, targets: Tensor) -> None:
        return None


def sum_pixel_accuracies(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the pixel accuracies of all images, a 0-dimensional tensor.

    The pixel accuracy is the fraction of correctly classified pixels among those that have a class. `scores` are
    [n, C, h, w], and `targets` are the classes, [n, h, w].
    """
    has_class = targets != NO_CLASS
    correct = ((scores.argmax(1) == targets) & has_class).sum((1, 2))
    return (correct / has_class.sum((1, 2)).clamp(min=1)).sum()


def _average_pixels(values: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of `values` [n, h, w] over the pixels of each image, [n].

    Pixels without a class in `targets` [n, h, w] are left out. The mean is 0 if no pixel has a class.
    """
    return values.sum((1, 2)) / (targets != NO_CLASS).sum((1, 2)).clamp(min=1)


def _compute_cross_entropy(outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean cross entropy over the pixels of each image, [n].

    `outputs` are logits [n, C, h, w], `targets` are classes [n, h, w], and `weights` [C] weight the pixels by class.
    """
    values = functional.cross_entropy(outputs, targets, weights, ignore_index=NO_CLASS, reduction="none")
    return _average_pixels(values, targets)


def _compute_focal_loss(outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean focal loss over the pixels of each image, [n].

    `outputs` are logits [n, C, h, w], `targets` are classes [n, h, w], and `weights` [C] weight the pixels by class.
    """
    values = functional.cross_entropy(outputs, targets, ignore_index=NO_CLASS, reduction="none")
    values = (1 - torch.exp(-values)) ** FOCAL_EXPONENT * values
    if weights is not None:
        values = values * weights[targets.where(targets != NO_CLASS, 0)]
    return _average_pixels(values, targets)


def _compute_dice_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean Dice loss over the classes that occur in each image, [n].

    `outputs` are logits [n, C, h, w], and `targets` are classes [n, h, w].
    """
    has_class = (targets != NO_CLASS)[:, None]
    probabilities = outputs.softmax(1) * has_class
    one_hot = functional.one_hot(targets.where(has_class[:, 0], 0), outputs.shape[1])  # [n, h, w, C]
    true = one_hot.permute(0, 3, 1, 2) * has_class
    intersections, sizes = (probabilities * true).sum((2, 3)), (probabilities + true).sum((2, 3))
    is_present = true.sum((2, 3)) > 0
    losses = 1 - (2 * intersections + DICE_SMOOTHING) / (sizes + DICE_SMOOTHING)
    return (losses * is_present).sum(1) / is_present.sum(1).clamp(min=1)
