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
from engine.metrics.average_precision import Bools, Floats, Ints, compute_box_overlaps, compute_mask_overlaps
from engine.metrics.base import Metric
from engine.models import detection_models
from engine.models.torchvision_detectors import split_instances
from engine.tasks.base import DatasetInfo, Objective, Visualization
from engine.tasks.detection.analysis import Comparison, ObjectAnalysis, ObjectMetric
from engine.tasks.detection.objects import SCORE_THRESHOLD, Detections, read_detections
from engine.tasks.detection.task import Detection, DetectionObjective, InstanceMetric
from engine.tasks.instances.entry import TASK
from engine.tasks.predictions import MASK_THRESHOLD, ObjectScores, Scores, format_counts


def _get_box_masks(detections: Detections) -> Floats:
    """Return the mask likelihoods of each detection on a grid over its box, [d, s, s]."""
    side = math.isqrt(detections.extra_outputs.shape[1])
    return detections.extra_outputs.reshape(-1, side, side)


def paste_masks(detections: Detections, height: int, width: int) -> Bools:
    """Return the masks of the detections, bool [d, height, width], for an image of this size."""
    box_masks = torch.from_numpy(_get_box_masks(detections)).float()
    pasted = paste_masks_in_image(box_masks[:, None], torch.from_numpy(detections.boxes).float(), (height, width))
    masks: Bools = (pasted[:, 0] >= MASK_THRESHOLD).numpy()
    return masks


class AnnotatedInstances(NamedTuple):
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


def read_instances(target: Tensor, classes: int) -> AnnotatedInstances:
    """Return the annotated objects of one image, given its target planes [2, h, w].

    `classes` is the number of classes. An ignored object may have any class, so it is repeated for each class.
    """
    annotated = split_instances(target)
    is_ignored = annotated.ignored.numpy()
    counted_indices, ignored_indices = np.flatnonzero(~is_ignored), np.flatnonzero(is_ignored)
    all_classes = np.arange(classes)
    indices = np.concatenate([counted_indices, ignored_indices.repeat(classes)])
    counted_classes = annotated.classes.numpy()[counted_indices]
    object_classes = np.concatenate([counted_classes, np.tile(all_classes, len(ignored_indices))])
    ignored = np.arange(len(indices)) >= len(counted_indices)
    masks, boxes = annotated.masks.numpy()[indices], annotated.boxes.double().numpy()[indices]
    return AnnotatedInstances(masks, boxes, object_classes, ignored)


class MaskMetric(InstanceMetric):
    KINDS = ("mask_", "box_")

    def compare(self, detections: Detections, target: Tensor) -> tuple[Ints, Bools, Sequence[Floats]]:
        objects = read_instances(target, classes=len(self.counters) - 1)
        overlaps = [
            compute_mask_overlaps(paste_masks(detections, *target.shape[-2:]), objects.masks, objects.ignored),
            compute_box_overlaps(detections.boxes, objects.boxes, objects.ignored),
        ]
        return objects.classes, objects.ignored, overlaps


class MaskObjects(ObjectMetric):
    def compare(self, detections: Detections, target: Tensor) -> Comparison:
        objects = read_instances(target, classes=self.counters.shape[1])
        masks = paste_masks(detections, *target.shape[-2:])
        areas, detection_areas = (each.sum((1, 2), dtype=np.float64) for each in (objects.masks, masks))
        overlaps = compute_mask_overlaps(masks, objects.masks, objects.ignored)
        return Comparison(detections, detection_areas, objects.classes, objects.ignored, areas, overlaps)


class OutlineAnalysis(ObjectAnalysis):
    metric_type = MaskObjects


class InstanceSegmentation(Detection):
    entry = TASK.entry
    models = detection_models.MASKERS

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        return InstanceObjective(dataset_info.classes)


class InstanceObjective(DetectionObjective):
    """Objective for instance segmentation. The detector computes the losses.

    Targets are two planes, int64 [n, 2, h, w]: the number of the object at each pixel, or 0 for no object, and the
    class of the object.
    """

    entry = InstanceSegmentation.entry
    analysis_type = OutlineAnalysis

    def __init__(self, classes: tuple[str, ...]) -> None:
        super().__init__(classes)
        if len(classes) == 1:  # then neither boxes nor class names are drawn (see `_visualize`)
            self.legend = ()

    def create_metric(self) -> Metric:
        return MaskMetric(len(self._classes))

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        """Return artificial targets with object 1, of class 0, in the center of each image.

        Without an object, only a part of the detector would be exercised. See the class for the planes of the targets.
        """
        height, width = inputs.shape[-2:]
        planes = torch.zeros((len(inputs), 2, height, width), dtype=torch.int64, device=inputs.device)
        planes[:, 1] = NO_CLASS
        middle = (slice(height // 4, 3 * height // 4), slice(width // 4, 3 * width // 4))
        planes[:, 0][:, *middle] = 1
        planes[:, 1][:, *middle] = 0
        return planes

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        objects = split_instances(target)
        boxes, classes, masks = (values[~objects.ignored] for values in (objects.boxes, objects.classes, objects.masks))
        return self._visualize(image, masks.numpy(), boxes.double().numpy(), classes.numpy())

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """Return the image with the objects above the score threshold, or with a message if there are none."""
        detections = read_detections(output, SCORE_THRESHOLD)
        if not len(detections.boxes):
            return Visualization(image, self.describe_no_detections(output))
        return self._visualize(image, paste_masks(detections, *image.shape[:2]), detections.boxes, detections.classes)

    def compute_scores(self, output: Tensor, size: int) -> Scores:
        detections = read_detections(output, 0.0)
        return ObjectScores(detections.boxes, detections.scores, detections.classes, _get_box_masks(detections))

    def _visualize(self, image: Bytes, masks: Bools, boxes: Floats, classes: Ints) -> Visualization:
        """Draw each object in a different color. If there are several classes, add boxes with class names."""
        object_colors = np.zeros(image.shape[:2], np.uint8)
        for number, mask in reversed(list(enumerate(masks))):  # the first object is drawn last, on top
            object_colors[mask] = 1 + number % (NO_CLASS - 1)
        drawn = overlay_mask(image, object_colors)
        numbers: list[int] = classes.tolist()
        if not self.legend:
            return Visualization(drawn, format_counts(self._classes, numbers))
        drawn = draw_boxes(drawn, boxes, numbers, [self._classes[number] for number in numbers])
        return Visualization(drawn, format_counts(self._classes, numbers), tuple(sorted(set(numbers))))
