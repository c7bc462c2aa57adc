"""Instance segmentation: the pixels and class of every object."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection.roi_heads import paste_masks_in_image

from engine.contract.job import Job
from engine.data.decoding.idx import Bytes
from engine.data.decoding.mask_values import NO_CLASS
from engine.data.drawing import draw_boxes, overlay_mask
from engine.metrics.average_precision import Bools, Floats, Ints, box_overlaps, mask_overlaps
from engine.metrics.base import Metric
from engine.models import detection_models
from engine.models.torchvision_detectors import instances
from engine.tasks.base import DatasetInfo, Objective, Visualization
from engine.tasks.detection.analysis import Comparison, ObjectAnalysis, ObjectMetric
from engine.tasks.detection.objects import SCORE_THRESHOLD, Detections, read_detections
from engine.tasks.detection.task import Detection, DetectionObjective, InstanceMetric
from engine.tasks.instances.entry import TASK
from engine.tasks.predictions import MASK_THRESHOLD, ObjectScores, Scores


def _masks_in_boxes(found: Detections) -> Floats:
    """Return the likelihood of each detected object at each point of a grid over its box, [d, s, s]."""
    side = math.isqrt(found.extra_outputs.shape[1])
    return found.extra_outputs.reshape(-1, side, side)


def masks_of(found: Detections, height: int, width: int) -> Bools:
    """Return the masks of the detections, bool [d, height, width], for an image of this size."""
    parts = torch.from_numpy(_masks_in_boxes(found)).float()
    pasted = paste_masks_in_image(parts[:, None], torch.from_numpy(found.boxes).float(), (height, width))
    likely: Bools = (pasted[:, 0] >= MASK_THRESHOLD).numpy()
    return likely


class Outlined(NamedTuple):
    """Annotated objects in one image.

    Attributes:
        masks: Masks in the full image, [g, h, w].
        boxes: x1, y1, x2 and y2 in pixels, [g, 4].
        classes: Class numbers, [g].
        ignored: True for each object that is ignored, [g].
    """

    masks: Bools
    boxes: Floats
    classes: Ints
    ignored: Bools


def outlined_in(target: Tensor, classes: int) -> Outlined:
    """Return the annotated objects of one image, given its target planes [2, h, w].

    `classes` is the number of classes. An ignored object may have any class, so it is repeated for each class.
    """
    true = instances(target)
    counted_indices, ignored_indices = np.flatnonzero(~true.ignored.numpy()), np.flatnonzero(true.ignored.numpy())
    all_classes = np.arange(classes)
    indices = np.concatenate([counted_indices, ignored_indices.repeat(classes)])
    object_classes = np.concatenate([true.classes.numpy()[counted_indices], np.tile(all_classes, len(ignored_indices))])
    ignored = np.arange(len(indices)) >= len(counted_indices)
    return Outlined(true.masks.numpy()[indices], true.boxes.double().numpy()[indices], object_classes, ignored)


class MaskMetric(InstanceMetric):
    KINDS = ("mask_", "box_")

    def compare(self, found: Detections, target: Tensor) -> tuple[Ints, Bools, Sequence[Floats]]:
        true = outlined_in(target, len(self.counters) - 1)
        overlaps = [
            mask_overlaps(masks_of(found, *target.shape[-2:]), true.masks, true.ignored),
            box_overlaps(found.boxes, true.boxes, true.ignored),
        ]
        return true.classes, true.ignored, overlaps


class MaskObjects(ObjectMetric):
    def compare(self, found: Detections, target: Tensor) -> Comparison:
        true = outlined_in(target, self.counters.shape[1])
        masks = masks_of(found, *target.shape[-2:])
        areas, found_areas = (each.sum((1, 2), dtype=np.float64) for each in (true.masks, masks))
        overlaps = mask_overlaps(masks, true.masks, true.ignored)
        return Comparison(found, found_areas, true.classes, true.ignored, areas, overlaps)


class OutlineAnalysis(ObjectAnalysis):
    metric_type = MaskObjects


class InstanceSegmentation(Detection):
    entry = TASK.entry
    models = detection_models.MASKERS

    def objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        return MasksOfImage(dataset_info.classes)


class MasksOfImage(DetectionObjective):
    """Objective for instance segmentation. The detector computes the losses.

    Targets are two planes, int64 [n, 2, h, w]: the number of the object at each pixel, or 0 for no object, and the
    class of the object.
    """

    entry = InstanceSegmentation.entry
    analysis_type = OutlineAnalysis

    def __init__(self, classes: tuple[str, ...]) -> None:
        super().__init__(classes)
        self.legend = self.legend if len(classes) > 1 else ()

    def metric(self) -> Metric:
        return MaskMetric(len(self._classes))

    def blank_targets(self, inputs: Tensor) -> Tensor:
        """Return artificial targets with an object in the center of each image, to exercise the entire detector."""
        height, width = inputs.shape[-2:]
        planes = torch.zeros((len(inputs), 2, height, width), dtype=torch.int64, device=inputs.device)
        planes[:, 1] = NO_CLASS
        middle = (slice(height // 4, 3 * height // 4), slice(width // 4, 3 * width // 4))
        planes[:, 0][:, *middle] = 1
        planes[:, 1][:, *middle] = 0
        return planes

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        true = instances(target)
        is_counted = ~true.ignored
        masks, boxes, classes = true.masks[is_counted], true.boxes[is_counted].double(), true.classes[is_counted]
        return self._visualize(image, masks.numpy(), boxes.numpy(), classes.numpy())

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        found = read_detections(output, SCORE_THRESHOLD)
        if not len(found.boxes):
            return Visualization(image, self.describe_no_detections(output))
        return self._visualize(image, masks_of(found, *image.shape[:2]), found.boxes, found.classes)

    def scores(self, output: Tensor, size: int) -> Scores:
        found = read_detections(output, 0.0)
        return ObjectScores(found.boxes, found.scores, found.classes, _masks_in_boxes(found))

    def _visualize(self, image: Bytes, masks: Bools, boxes: Floats, classes: Ints) -> Visualization:
        """Draw each object in a different color. If there are several classes, add boxes with class names."""
        plane = np.zeros(image.shape[:2], np.uint8)
        for number, mask in reversed(list(enumerate(masks))):
            plane[mask] = 1 + number % (NO_CLASS - 1)
        drawn = overlay_mask(image, plane)
        labels: list[int] = classes.tolist()
        if not self.legend:
            return Visualization(drawn, self.describe_counts(labels))
        drawn = draw_boxes(drawn, boxes, labels, self.names(classes))
        return Visualization(drawn, self.describe_counts(labels), tuple(sorted(set(labels))))
