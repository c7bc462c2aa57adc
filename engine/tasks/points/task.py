"""Segmentation of point clouds: a class for every point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data.datasets.open_splits import Splits
from engine.data.decoding.idx import Bytes
from engine.data.formats.shared.ignored_class import drop_point_label
from engine.data.randomness import RandomStreams
from engine.data.transforms.device_transforms import Statistics
from engine.metrics.base import Metric
from engine.metrics.class_counts import compute_softened_weights
from engine.models import user_file, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.model_surgery import set_heads
from engine.models.registry import build_external, build_seeded, is_external
from engine.system.format import counted
from engine.tasks.base import DatasetInfo, Objective, Task, Visualization
from engine.tasks.points.drawing import create_point_legend, draw_points, encode_points
from engine.tasks.points.entry import TASK
from engine.tasks.points.files import CloudFiles
from engine.tasks.points.networks import PointCNN
from engine.tasks.points.samples import PointBlocks
from engine.tasks.predictions import PointScores, Scores
from engine.tasks.segmentation.task import SegmentationMetric, SegmentationObjective

WIDTHS = {"pointcnn": 4, "pointcnn_x1": 1, "pointcnn_x2": 2, "pointcnn_x8": 8}
"""Factor on the channels of PointCNN for each model id.

Its authors use 4 for Semantic3D, and 8 for S3DIS and ScanNet.
"""
CLASSES, CHANNELS = 8, 6
"""Number of classes and of input channels that the catalogue states for PointCNN: Semantic3D with colored points."""
DRAWING_SIDE = 256
"""Side length in pixels of drawn point clouds."""


class PointSegmentation(Task):
    entry = TASK.entry
    files = CloudFiles()

    def list_models(self) -> tuple[str, ...]:
        return tuple(WIDTHS)

    def describe_model(self, model: str) -> ModelInfo:
        width = WIDTHS[model]
        title = "PointCNN" if model == self.entry.model else f"PointCNN, {width} x 32 channels"
        return ModelInfo(title, family="PointCNN", image_size=0, min_image_size=0, classes=CLASSES, channels=CHANNELS)

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        """Build a model that maps points [n, channels, points] to class scores [n, classes, points].

        The first three channels are positions. Raises TaskError.
        """
        construct = _build_checked_user_model if is_external(job) else _build_pointcnn
        model = build_seeded(job, WIDTHS, lambda: construct(job, classes, channels))
        head = None if is_external(job) else "head"  # that of PointCNN
        if job.model.pretrained and not job.model.weights_file:
            message = "There are no pretrained weights for point clouds."
            raise TaskError("pretrained", message, "Set a weights file, or train from scratch.")
        initial = weights.read_initial(job, job.model.name)
        if initial is not None:
            weights.load(model, initial, head=head, channels=channels)
        if job.model.freeze_epochs and head is None:
            message = "Footplate can't determine the head of a model file."
            raise TaskError("freeze_epochs", message, "Train all layers.")
        set_heads(model, [head] if head is not None else [], freeze=bool(job.model.freeze_epochs))
        return model.train()

    def get_image_size(self, job: Job) -> int:
        """Return 0, since points have no image size."""
        return 0

    def get_normalization(self, job: Job, channels: int) -> Statistics:
        """Return means of 0 and deviations of 1, since samples are normalized when they are read."""
        return (0.0,) * channels, (1.0,) * channels

    def get_example_shape(self, job: Job, channels: int) -> tuple[int, ...]:
        return channels, job.data.points

    def prepare_splits(self, job: Job, splits: Splits) -> Splits:
        """Return splits with the job's number of points per sample, normalized by statistics of the training clouds.

        Points with the label `ignore_value` of the job have no class.
        """
        assert isinstance(splits.train, PointBlocks)
        classes, label_code = splits.classes, splits.train.code
        if job.data.ignore_value is not None:
            remaining = drop_point_label(classes, label_code, job.data.ignore_value)
            if isinstance(remaining, Problem):
                raise TaskError.of(remaining)
            assert remaining.code is not None
            classes, label_code = remaining.classes, remaining.code

        def create_blocks(split: PointBlocks) -> PointBlocks:
            """Create the samples of a split again, with the job's number of points and random numbers."""
            blocks = PointBlocks(split.split, label_code, split.folder, points=job.data.points)
            blocks.streams = RandomStreams(job.training.seed)
            return blocks

        splits = splits.with_each(create_blocks, classes=classes)
        train = splits.train
        assert isinstance(train, PointBlocks)
        train.training, train.is_rotated = True, job.augmentation.name != "none"
        statistics = train.compute_statistics()
        return splits.with_each(lambda split: split.normalize(statistics), statistics=statistics)

    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        weights = None
        if job.training.class_weights == "balanced":
            weights = compute_softened_weights(dataset_info.class_counts())
        return PointObjective(job.training.loss, dataset_info.classes, weights)


class PointMetric(SegmentationMetric):
    """Segmentation metric that counts points instead of pixels."""

    def compute(self) -> dict[str, float]:
        """Return the metrics of segmentation by id, in which the accuracy is called "point_accuracy"."""
        measured = super().compute()
        return {"point_accuracy" if name == "pixel_accuracy" else name: value for name, value in measured.items()}


class PointObjective(SegmentationObjective):
    """Objective for the class of every point, with the same losses as `SegmentationObjective`.

    Outputs are [n, classes, points], targets int64 [n, points]. Points with the class `NO_CLASS` are left out.
    """

    entry = PointSegmentation.entry
    compiles = False

    def __init__(self, loss_name: str, classes: Sequence[str], weights: Tensor | None = None) -> None:
        super().__init__(loss_name, classes, weights)
        self.legend = create_point_legend(classes)

    def _compute_loss(self, outputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss of each cloud, [n]. The points are treated as images with a height of 1."""
        return super()._compute_loss(outputs[:, :, None], targets[:, None], weights)

    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        return super().count_correct(outputs[:, :, None], targets[:, None])

    def create_metric(self) -> Metric:
        return PointMetric(self, self._classes)

    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        return torch.zeros((len(inputs), inputs.shape[-1]), dtype=torch.int64, device=inputs.device)

    def compute_scores(self, output: Tensor, size: int) -> Scores:
        return PointScores(output.float().softmax(0))

    def _draw_classes(self, image: npt.NDArray[Any], plane: Bytes) -> Bytes:
        """Draw the points in the colors of their classes.

        `image` is the model's input, float32 [channels, points], and `plane` holds the class of each point.
        """
        return draw_points(image[:3].T, plane, DRAWING_SIDE)

    def _visualize(self, image: npt.NDArray[Any], classes: Tensor) -> Visualization:
        cloud = encode_points(image[:3].T, classes.to(torch.uint8).numpy())
        return super()._visualize(image, classes)._replace(cloud=cloud)


def _build_pointcnn(job: Job, classes: int, channels: int) -> nn.Module:
    """Build a PointCNN with the width of the job's model."""
    return PointCNN(channels, classes, WIDTHS[job.model.name])


def _build_checked_user_model(job: Job, classes: int, channels: int) -> nn.Module:
    """Build the user's model, and check that it returns the scores of each point. Raises TaskError."""
    model = build_external(job, classes, channels, images=False)
    example = torch.randn(2, channels, job.data.points, generator=torch.Generator().manual_seed(0))
    remedy = f"Make it return {counted(classes, 'value')} per point."
    user_file.try_out(job.model.name, model, example, (classes, job.data.points), remedy)
    return model
