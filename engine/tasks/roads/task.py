"""Road extraction: the pixels and directions of roads or other lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional

from engine.checks.job_checks import class_count_problems
from engine.contract.catalogue import Measure
from engine.contract.job import Job
from engine.data.datasets.images import DatasetError
from engine.data.datasets.open_splits import Splits
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.drawing import color_legend
from engine.metrics.base import Metric
from engine.tasks.analysis import Analysis, EvaluatedMetrics, MetricValues
from engine.tasks.base import DatasetInfo, ImageTask, Objective, Visualization
from engine.tasks.explanation import Target, create_pixel_targets
from engine.tasks.predictions import LineScores, Scores, format_line_fraction
from engine.tasks.roads import models
from engine.tasks.roads.directions import BACKGROUND, DIRECTIONS, LINE
from engine.tasks.roads.entry import TASK
from engine.tasks.roads.metrics import RoadMetric
from engine.tasks.roads.models import CLASSES, SCORES
from engine.tasks.roads.networks import unpack_maps
from engine.tasks.roads.samples import OrientedImages
from engine.tasks.segmentation.task import Segmentation, sum_pixel_accuracies


class RoadExtraction(ImageTask):
    entry = TASK.entry
    module = models

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        return RoadObjective()

    def prepare_splits(self, job: Job, splits: Splits) -> Splits:
        """Return the splits with directions added to the masks, and without the class that the job ignores.

        Raises DatasetError if there is more than one kind of line, and TaskError if there is none.
        """
        splits = Segmentation().prepare_splits(job, splits)  # leaves out the class, or raises TaskError
        problems = class_count_problems(self.entry, len(splits.classes))
        if problems:
            raise DatasetError(problems)
        return splits.with_each(OrientedImages)


class RoadAnalysis(Analysis):
    """Analysis of lines, which adds the precision and recall of their center lines to the metrics."""

    entries = (
        Measure("relaxed_precision", "Relaxed precision", higher_is_better=True, percent=True),
        Measure("relaxed_recall", "Relaxed recall", higher_is_better=True, percent=True),
    )

    def compute_values(self, measured: EvaluatedMetrics) -> MetricValues:
        measures, per_class = super().compute_values(measured)
        precision, recall = measured.task_metric.compute_relaxed_scores()
        return MetricValues({**measures, "relaxed_precision": precision, "relaxed_recall": recall}, per_class)


class RoadObjective(Objective):
    """Objective for lines and their directions after Batra et al. 2019.

    The loss of an image is the sum of a soft IoU loss for the lines and a cross entropy for the directions, over the
    model's maps at the full, half and quarter size. Pixels with `NO_CLASS` are left out. This follows the authors' code
    (train_mtl.py), except that the soft IoU leaves out the background if there are lines, and that lines and background
    have the same weight in the cross entropy.

    Targets are int64 [n, 2, h, w]: classes, and directions (see `directions`). The targets of the smaller maps are
    every second or every fourth pixel.
    """

    entry = TASK.entry
    analysis_type = RoadAnalysis
    exports_all_outputs = False

    def __init__(self) -> None:
        quarters = _create_direction_colors()[:: DIRECTIONS // 4]
        self.legend = color_legend(("level", "rising to the right", "upright", "falling to the right"), quarters)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return each image's loss, summed over the resolutions: soft IoU of roads plus cross-entropy of directions."""
        size = targets.shape[-1]
        total = outputs.new_zeros(len(outputs), dtype=torch.float32)
        for scores in unpack_maps(outputs, size):
            step = size // scores.shape[-1]
            classes, directions = targets[:, :, ::step, ::step].unbind(1)
            class_scores, direction_scores = scores.split([CLASSES, SCORES - CLASSES], 1)
            total = total + _compute_soft_iou_loss(class_scores, classes)
            total = total + _compute_cross_entropy(direction_scores, directions)
        return total

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        class_scores, _ = _split_full_size_scores(outputs, targets.shape[-1])
        return sum_pixel_accuracies(class_scores, targets[:, 0])

    def create_metric(self) -> Metric:
        return RoadMetric(self.loss, _split_full_size_scores)

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        return torch.zeros((len(inputs), 2, *inputs.shape[-2:]), dtype=torch.int64, device=inputs.device)

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        classes, directions = target.numpy()
        return self._visualize(image, classes == LINE, directions, has_class=classes != NO_CLASS)

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """Draw predicted lines in the colors of their most likely directions."""
        class_scores, direction_scores = _split_full_size_scores(output[None].float(), image.shape[0])
        lines = (class_scores[0].argmax(0) == LINE).numpy()
        directions = direction_scores[0, :DIRECTIONS].argmax(0).numpy()  # without the last class, no direction
        return self._visualize(image, lines, directions, has_class=np.ones_like(lines))

    def compute_scores(self, output: Tensor, size: int) -> Scores:
        """Return the probability of a road at each pixel, from the model's output with the highest resolution."""
        class_scores, _ = _split_full_size_scores(output[None].float(), size)
        return LineScores(class_scores[0].softmax(0)[LINE:])

    def select_explanation_targets(
        self, outputs: Any, classes: Sequence[str], requested: Sequence[int], size: int
    ) -> list[Target]:
        class_scores, _ = _split_full_size_scores(outputs, size)
        return create_pixel_targets(class_scores[0], classes, requested or [LINE])

    def select_exported_outputs(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        """Return the scores of the map with the highest resolution, [n, scores, h, w]."""
        height, width = inputs.shape[-2:]
        return outputs.flatten(2)[:, :, : height * width].unflatten(2, (height, width))

    def _visualize(
        self, image: Bytes, is_line: np.ndarray, directions: np.ndarray, *, has_class: np.ndarray
    ) -> Visualization:
        """Draw lines in the colors of their directions, with a text about the fraction of the image that they cover.

        `is_line` and `directions` (direction classes) are [h, w]. Only pixels where `has_class` is True count in the
        fraction.
        """
        fraction = is_line[has_class].mean() if has_class.any() else 0
        legend = tuple(range(len(self.legend))) if is_line.any() else ()
        return Visualization(
            _draw_directions(image, is_line, directions), format_line_fraction(float(fraction)), legend
        )


def _split_full_size_scores(outputs: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the scores of the classes and of the directions in the model's largest map, [n, scores, size, size] each.

    `size` is the side of the model's images.
    """
    largest, *_ = unpack_maps(outputs, size)
    class_scores, direction_scores = largest.split([CLASSES, SCORES - CLASSES], 1)
    return class_scores, direction_scores


def _compute_soft_iou_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return 1 minus the soft IoU of the lines in each image, [n], or of the background if an image has no lines.

    The soft IoU is computed with likelihoods instead of binary pixels (Máttyus et al. 2017, section 3.1). The code of
    Batra et al. 2019 uses the mean over both classes. If lines are rare, the background then has the larger gradient,
    and a short training predicts no lines.
    """
    has_class = targets != NO_CLASS
    probabilities = scores.softmax(1, dtype=torch.float32)
    has_lines = (targets == LINE).any((1, 2))[:, None, None]
    is_target = has_class & (targets == torch.where(has_lines, LINE, 0))
    probabilities = torch.where(has_lines, probabilities[:, LINE], probabilities[:, 0]) * has_class
    intersection = (probabilities * is_target).sum((1, 2))
    union = (probabilities + is_target.float()).sum((1, 2)) - intersection
    return (1 - intersection / union.clamp(min=1)) * has_class.any((1, 2))


def _compute_cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of the cross entropies of the lines and of the background in each image, [n].

    Lines and background have the same weight. The cross entropy of lines is 0 in an image without lines, and likewise
    for the background. The code of Batra et al. 2019 uses the mean over all pixels. If lines are rare and thin, the
    background then has nearly all of the gradient, and a short training learns no directions.
    """
    pixel_losses = functional.cross_entropy(scores.float(), targets, ignore_index=NO_CLASS, reduction="none")
    line_loss, background_loss = (
        (pixel_losses * mask).sum((1, 2)) / mask.sum((1, 2)).clamp(min=1)
        for mask in (targets < DIRECTIONS, targets == BACKGROUND)
    )
    return (line_loss + background_loss) / 2


def _draw_directions(image: Bytes, is_line: np.ndarray, directions: np.ndarray) -> Bytes:
    """Draw the lines on `image` in the colors of their directions. Lines without a direction are white.

    Red means horizontal. The hues complete one cycle over a half turn of the direction.
    """
    colors = np.concatenate([_create_direction_colors(), np.full((256 - DIRECTIONS, 3), 255, np.uint8)])[directions]
    drawn: Bytes = np.where(is_line[..., None], image // 4 + colors // 4 * 3, image).astype(np.uint8)
    return drawn


def _create_direction_colors() -> Bytes:
    """Create the colors of the direction classes, uint8 [DIRECTIONS, 3]."""
    hues = np.round(np.arange(DIRECTIONS) * 256 / DIRECTIONS).astype(np.uint8)
    full = np.full(DIRECTIONS, 255, np.uint8)
    return np.asarray(Image.fromarray(np.stack([hues, full, full], 1)[None], "HSV").convert("RGB"))[0]
