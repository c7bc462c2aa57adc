"""Edge detection: the likelihood that people would draw a boundary at each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.inference.evaluation import ClassCurves
from engine.contract.job import Job
from engine.data.datasets.images import MaskedImages
from engine.data.datasets.open_splits import Splits
from engine.data.decoding.idx import Bytes
from engine.metrics.base import Metric
from engine.tasks.analysis import Analysis, EvaluatedMetrics, Intervals
from engine.tasks.base import DatasetInfo, ImageTask, Objective, Visualization
from engine.tasks.edges import models
from engine.tasks.edges.decoding import EDGE_AGREEMENT, FULL, OUTSIDE
from engine.tasks.edges.entry import TASK
from engine.tasks.edges.formats import CLASSES
from engine.tasks.edges.metrics import THRESHOLDS, EdgeMetric
from engine.tasks.edges.samples import EdgesOfMasks
from engine.tasks.explanation import Target, create_mean_target
from engine.tasks.predictions import LineScores, Scores


class EdgeDetection(ImageTask):
    entry = TASK.entry
    module = models

    def prepare_splits(self, job: Job, splits: Splits) -> Splits:
        """Return the splits of an edge dataset unchanged, or splits whose edges are computed from masks."""
        if not isinstance(splits.train, MaskedImages):
            return splits
        return splits.with_each(lambda split: EdgesOfMasks(split, len(splits.classes)), classes=CLASSES)

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        if job.model.name in ("bdcn", "bdcn_bn"):  # weights of He et al. 2019, section 4.2
            return EdgeObjective(side=0.5, fused=1.1, balance=1.1)
        return EdgeObjective()


class EdgeAnalysis(Analysis):
    """Analysis of edges, with the precision-recall curve."""

    def compute_curves(self, measured: EvaluatedMetrics, intervals: Intervals) -> tuple[ClassCurves, ...]:
        """Return one precision-recall curve over the benchmark's thresholds, from high to low."""
        metric = measured.task_metric
        recall, precision = metric.compute_curve()
        scores = metric.compute_scores()
        return (
            ClassCurves(
                class_index=0,
                positives=metric.annotated_pixels,
                recall=tuple(recall[::-1].tolist()),
                precision=tuple(precision[::-1].tolist()),
                thresholds=tuple(THRESHOLDS[::-1].tolist()),
                average_precision=intervals.measures.get("ap"),
                best_threshold=scores.threshold,
                best_f1=scores.ods,
            ),
        )


class EdgeObjective(Objective):
    """Objective for edge maps [n, maps, h, w], given as logits. All maps are learned, and the last one is the result.

    Targets are int64 [n, 2, h, w] from `decoding.letterbox_edges`. The loss of a map is the class-balanced cross
    entropy by Xie and Tu 2015, equation 2: edges are weighted by the fraction of pixels that are not edges, and other
    pixels by the fraction of edges times `balance` (lambda in He et al. 2019, section 3.3). Pixels that some annotators
    drew, but at most the fraction `EDGE_AGREEMENT` of them, are left out. Both papers sum over pixels. Here the sum is
    divided by the sum of the weights, so that neither the loss nor a suitable learning rate depends on the image size.

    Args:
        side: Weight of each side map in the sum over the maps: 1 in HED, 0.5 in BDCN (He et al., section 4.2).
        fused: Weight of the fused map, which is the last: 1 in HED, 1.1 in BDCN.
        balance: Factor on the weight of pixels that are not edges.
    """

    entry = TASK.entry
    analysis_type = EdgeAnalysis
    exports_all_outputs = False

    def __init__(self, *, side: float = 1.0, fused: float = 1.0, balance: float = 1.0) -> None:
        self._side_weight = side
        self._fused_weight = fused
        self._background_factor = balance

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image, [n]: the weighted sum of the losses of its side maps and its fused map."""
        agreement = targets[:, :1]
        is_edge = (agreement > EDGE_AGREEMENT * FULL) & (agreement != OUTSIDE)
        is_background = agreement == 0
        edge_count, background_count = (mask.sum((1, 2, 3), keepdim=True).float() for mask in (is_edge, is_background))
        # Both kinds of pixels have the same total weight up to the factor. Pixels that few annotators drew have none.
        weights = is_edge * background_count + is_background * (self._background_factor * edge_count)
        pixel_losses = functional.binary_cross_entropy_with_logits(
            outputs.float(), is_edge.float().expand(outputs.shape), reduction="none"
        )
        map_losses = (pixel_losses * weights).sum((2, 3)) / weights.sum((2, 3)).clamp(min=1)
        return self._side_weight * map_losses[:, :-1].sum(1) + self._fused_weight * map_losses[:, -1]

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        return None

    def create_metric(self) -> Metric:
        return EdgeMetric(self.loss)

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        return torch.zeros((len(inputs), 2, *inputs.shape[-2:]), dtype=torch.int64, device=inputs.device)

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        """Draw the fraction of annotators who drew each pixel, white on black."""
        agreement = target[0].numpy()
        return _draw_likelihood(np.where(agreement == OUTSIDE, 0, agreement / FULL))

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """Draw the likelihood of an edge at each pixel, white on black."""
        return _draw_likelihood(output[-1].float().sigmoid().numpy())

    def compute_scores(self, output: Tensor, size: int) -> Scores:
        """Return the likelihood of an edge at each pixel, from the last (fused) edge map."""
        return LineScores(output[-1:].float().sigmoid())

    def select_explanation_targets(
        self, outputs: Any, classes: Sequence[str], requested: Sequence[int], size: int
    ) -> list[Target]:
        """Create a target from the mean of the fused (last) map over the pixels of the first image that are edges."""
        logits = outputs[0, -1]
        probabilities = logits.detach().sigmoid()
        return [create_mean_target(classes[0], logits, probabilities, probabilities >= 0.5)]

    def select_exported_outputs(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        """Return the last (fused) edge map, [n, 1, h, w]."""
        return outputs[:, -1:]


def _draw_likelihood(likelihood: np.ndarray) -> Visualization:
    """Draw values in 0..1, [h, w], as gray levels."""
    levels = np.rint(likelihood * 255).astype(np.uint8)
    return Visualization(np.repeat(levels[:, :, None], 3, 2))
