"""Object detection: a box around every object, and the class of the object."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from engine.contract.job import Job
from engine.data.decoding.idx import Bytes
from engine.data.drawing import draw_boxes, frame_legend
from engine.data.transforms.device_transforms import Statistics
from engine.metrics.average_precision import (
    THRESHOLDS,
    Bools,
    Floats,
    Ints,
    compute_average_precisions,
    compute_box_overlaps,
    match_detections,
)
from engine.metrics.base import Metric
from engine.models import detection_models
from engine.models.base import ModelInfo
from engine.tasks.base import DatasetInfo, Objective, Task, Visualization
from engine.tasks.detection.analysis import ObjectAnalysis
from engine.tasks.detection.entry import TASK
from engine.tasks.detection.objects import SCORE_THRESHOLD, Detections, read_detections, read_objects
from engine.tasks.explanation import Target
from engine.tasks.predictions import ObjectScores, Scores, format_counts, format_percentages

MAX_EXPLAINED = 3
"""Maximum number of detections that are explained if no class is requested."""


class InstanceMetric(Metric):
    """Metric of a detector: average precision for each kind of overlap, such as that of boxes or of masks.

    `KINDS` are the prefixes of the metric names for the kinds of overlap. `counters` hold the number of images, and for
    each class the number of objects that are not ignored. `rows` has a row per detection in all images: see
    `match_detections` for its columns.
    """

    KINDS: ClassVar[tuple[str, ...]]

    def __init__(self, classes: int) -> None:
        self.counters = torch.zeros(1 + classes, dtype=torch.float64)
        self.rows = torch.empty((0, 2 + len(self.KINDS) * len(THRESHOLDS)), dtype=torch.float64)

    @abstractmethod
    def compare(self, detections: Detections, target: Tensor) -> tuple[Ints, Bools, Sequence[Floats]]:
        """Compare the detections in an image with its objects.

        Returns the classes of the objects [g], their ignored flags [g], and their overlaps with the detections, one
        array [d, g] for each kind.
        """

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add the detections, matched with objects, to `rows`, and count images and objects in `counters`."""
        counts = np.zeros(len(self.counters))
        for output, target in zip(outputs.cpu(), targets.cpu(), strict=True):
            detections = read_detections(output)
            classes, ignored, overlaps = self.compare(detections, target)
            rows = match_detections(detections.classes, detections.scores, classes, ignored, overlaps)
            self.add_rows(torch.from_numpy(rows))
            counts[0] += 1
            counts[1:] += np.bincount(classes[~ignored], minlength=len(counts) - 1)
        self.counters = self.counters + torch.from_numpy(counts)

    def compute_precisions(self) -> dict[str, Floats]:
        """Return the average precision of each class at each IoU threshold, [C, 10], keyed by kind of overlap.

        It is NaN for a class without objects.
        """
        rows, counts = self.rows.cpu().numpy(), self.counters.cpu().numpy()[1:]
        by_kind = np.split(rows[:, 2:], len(self.KINDS), axis=1)
        return {
            kind: compute_average_precisions(np.concatenate([rows[:, :2], outcomes], 1), counts)
            for kind, outcomes in zip(self.KINDS, by_kind, strict=True)
        }

    def compute(self) -> dict[str, float]:
        """Return mAP, AP50 and AP75 for each kind of overlap by metric id, or {} without images.

        They are means over the classes that have objects, or 0 if no class has any.
        """
        if not self.counters[0]:
            return {}
        values: dict[str, float] = {}
        for kind, precisions in self.compute_precisions().items():
            with_objects = precisions[~np.isnan(precisions[:, 0])]
            mean = with_objects.mean(0) if len(with_objects) else np.zeros(len(THRESHOLDS))
            # The thresholds with the indices 0 and 5 are 0.5 and 0.75.
            values |= {f"{kind}map": float(mean.mean()), f"{kind}ap50": float(mean[0]), f"{kind}ap75": float(mean[5])}
        return values

    def per_class(self) -> dict[str, tuple[float | None, ...]]:
        """Return the AP over all overlap thresholds and the AP50 of each class, keyed by column title.

        For example "AP" and "AP50" for boxes, and "Mask AP" for masks. It is None for a class without objects.
        """
        columns: dict[str, tuple[float | None, ...]] = {}
        for kind, precisions in self.compute_precisions().items():
            name = f"{kind.rstrip('_').capitalize()} AP".strip()  # such as "AP" or "Mask AP"
            columns |= {name: _replace_nan(precisions.mean(1)), f"{name}50": _replace_nan(precisions[:, 0])}
        return columns


def _replace_nan(values: Floats) -> tuple[float | None, ...]:
    """Convert values to a tuple in which None replaces NaN."""
    return tuple(None if np.isnan(value) else float(value) for value in values)


class BoxMetric(InstanceMetric):
    KINDS = ("",)

    def compare(self, detections: Detections, target: Tensor) -> tuple[Ints, Bools, Sequence[Floats]]:
        objects = read_objects(target)
        return (
            objects.classes,
            objects.ignored,
            [compute_box_overlaps(detections.boxes, objects.boxes, objects.ignored)],
        )


class Detection(Task):
    entry = TASK.entry
    models = detection_models.DETECTORS

    def list_models(self) -> tuple[str, ...]:
        return tuple(self.models)

    def describe_model(self, model: str) -> ModelInfo:
        return detection_models.describe_model(model)

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        return detection_models.build(job, classes, channels, self.get_image_size(job), self.models)

    def get_image_size(self, job: Job) -> int:
        return detection_models.get_image_size(job)

    def get_statistics(self, job: Job) -> Statistics:
        return detection_models.get_statistics(job)

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        return BoxObjective(dataset_info.classes)


class DetectionObjective(Objective):
    """Objective for a detector whose forward pass returns the losses of each image in training."""

    loss_in_model = True
    compiles = False  # the number of boxes varies between steps
    score_threshold = SCORE_THRESHOLD
    analysis_type = ObjectAnalysis

    def __init__(self, classes: tuple[str, ...]) -> None:
        self.legend = frame_legend(classes)
        self._classes = classes

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each image, [n]: the sum of the model's losses for it, `outputs` [n, losses].

        The model only outputs losses in training. It has already compared its predictions with the targets.
        """
        return outputs.sum(1)

    def count_correct(self, outputs: Tensor, targets: Tensor) -> None:
        return None

    def compute_scores(self, output: Tensor, size: int) -> Scores:
        detections = read_detections(output, 0.0)
        return ObjectScores(detections.boxes, detections.scores, detections.classes)

    def select_explanation_targets(
        self, outputs: Any, classes: Sequence[str], requested: Sequence[int], size: int
    ) -> list[Target]:
        """Return a target for each detection to explain, with the detection's score as its value.

        These are the best detection of each requested class. If no class is requested, they are the first
        `MAX_EXPLAINED` displayed detections or, if none is displayed, the best detection.
        """
        (detections,) = outputs
        # Label 0 is the background.
        scores, labels = detections["scores"].detach(), detections["labels"] - 1
        order = scores.argsort(descending=True, stable=True).tolist()
        if requested:
            best = [next((row for row in order if labels[row] == number), None) for number in requested]
            rows = [row for row in best if row is not None]
        else:
            rows = [row for row in order if scores[row] >= SCORE_THRESHOLD][:MAX_EXPLAINED] or order[:1]
        boxes = detections["boxes"].detach().tolist()
        return [
            Target(classes[int(labels[row])], detections["scores"][row], float(scores[row]), tuple(boxes[row]))
            for row in rows
        ]

    def describe_no_detections(self, output: Tensor) -> str:
        """Return the text for an image if all scores of its detections are below `SCORE_THRESHOLD`."""
        best = float(output[:, 4].max()) if len(output) else -1.0  # negative for padding
        text = f"no detections with a score of {100 * SCORE_THRESHOLD:.0f}%"
        return text if best < 0 else f"{text}; the best score is {100 * best:.0f}%"


class BoxObjective(DetectionObjective):
    """Objective for object detection. The detector computes the losses.

    Targets are float32 [n, m, 6]: x1, y1, x2, y2 in pixels, the class (-1 for padding), and 1 if the object is ignored.
    """

    entry = Detection.entry

    def create_metric(self) -> Metric:
        return BoxMetric(len(self._classes))

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        """Return artificial targets with a box in the center of each image, to exercise the entire detector."""
        side = float(inputs.shape[-1])
        box = torch.tensor([[side / 4, side / 4, 3 * side / 4, 3 * side / 4, 0, 0]], device=inputs.device)
        return box.repeat(len(inputs), 1, 1)

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        objects = read_objects(target)
        labels = [self._classes[number] for number in objects.classes]
        return self._visualize(image, objects.boxes, objects.classes, labels)

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """Return the image with the detections above the score threshold, or with a message if there are none."""
        detections = read_detections(output, SCORE_THRESHOLD)
        if not len(detections.boxes):
            return Visualization(image, self.describe_no_detections(output))
        labels = format_percentages(self._classes, detections.classes.tolist(), detections.scores.tolist())
        return self._visualize(image, detections.boxes, detections.classes, labels)

    def _visualize(self, image: Bytes, boxes: Floats, classes: Ints, labels: Sequence[str]) -> Visualization:
        """Draw boxes [n, 4] with their classes [n] and labels on the image."""
        numbers: list[int] = classes.tolist()
        drawn = draw_boxes(image, boxes, numbers, labels)
        return Visualization(drawn, format_counts(self._classes, numbers), tuple(sorted(set(numbers))))
