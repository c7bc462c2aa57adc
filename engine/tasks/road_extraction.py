"""Road extraction, and that of anything else that is long and thin: which pixels are of lines, and where the lines
lead.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from engine.checks.job_checks import class_count_problems
from engine.contract.catalogue import DefaultModel, Measure, TaskEntry
from engine.contract.job import Job
from engine.data.datasets.images import DatasetError
from engine.data.datasets.open_splits import Splits
from engine.data.datasets.orientation import BACKGROUND, DIRECTIONS, LINE
from engine.data.datasets.oriented_images import OrientedImages
from engine.data.decoding.idx import Bytes
from engine.data.decoding.masks import NO_CLASS
from engine.data.drawing import legend_of
from engine.data.transforms.device_transforms import Statistics
from engine.metrics.base import Metric
from engine.metrics.road_metrics import RoadMetric
from engine.models import encoders, registry, road_models
from engine.models.base import ModelInfo
from engine.models.networks.road_networks import unpack
from engine.models.road_models import CLASSES, SCORES
from engine.tasks.base import DatasetInfo, Objective, Task, Visualization
from engine.tasks.predictions import LineScores, Scores
from engine.tasks.segmentation import Segmentation


class RoadExtraction(Task):
    entry: ClassVar[TaskEntry] = TaskEntry(
        id="road_extraction",
        title="Roads and lines",
        annotations=("masks",),
        measures=(
            Measure("iou", "IoU", higher_is_better=True, percent=True),
            Measure("relaxed_iou", "Relaxed IoU", higher_is_better=True, percent=True),
            Measure("f1", "F1", higher_is_better=True, percent=True),
            Measure("orientation", "Direction accuracy", higher_is_better=True, percent=True),
            Measure("loss", "Validation loss", higher_is_better=False),
        ),
        defaults=(DefaultModel("linknet_mtl", encoder=encoders.INCLUDED),),
        fields=("encoder", "ignore_value"),
        classes=CLASSES,
    )

    def model_names(self) -> tuple[str, ...]:
        return road_models.names()

    def model_info(self, model: str) -> ModelInfo:
        return road_models.model_info(model)

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        return road_models.build(job, channels, self.image_size(job))

    def image_size(self, job: Job) -> int:
        return registry.image_size(job, road_models.IMAGE_SIZE)

    def normalisation(self, job: Job, channels: int) -> Statistics:
        """Return the statistics that the model's weights expect; a gray image takes the mean over the colors."""
        mean, std = road_models.statistics(job)
        return (mean, std) if channels == 3 else ((sum(mean) / 3,), (sum(std) / 3,))

    def objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        return LinesAndDirections()

    def prepared(self, job: Job, splits: Splits) -> Splits:
        """With the direction of the lines beside the classes, and without the class of the value that the job has
        ignored. Raises DatasetError where there is more than one kind of lines, TaskError where there is none.
        """
        splits = Segmentation().prepared(job, splits)
        wrong = class_count_problems(self.entry, len(splits.classes))
        if wrong:
            raise DatasetError(wrong)
        return splits.with_each(OrientedImages)


class LinesAndDirections(Objective):
    """What is a line, and its direction, in Batra et al. 2019's way: an image's loss is the sum over the maps that
    the model gives, at the whole, the half and the quarter of the side, of a soft IoU loss of the lines and a cross
    entropy of the directions, as in the authors' code (train_mtl.py), but with other means. Pixels of `NO_CLASS` are
    left out.

    Targets are int64 [n, 2, h, w], of classes and of directions (`engine.data.datasets.orientation`); smaller maps
    learn from every second, and every fourth, of their pixels.
    """

    entry = RoadExtraction.entry

    def __init__(self) -> None:
        quarters = _wheel()[:: DIRECTIONS // 4]
        self.legend = legend_of(("level", "rising to the right", "upright", "falling to the right"), quarters)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        size = targets.shape[-1]
        total = outputs.new_zeros(len(outputs), dtype=torch.float32)
        for scores in unpack(outputs, size):
            step = size // scores.shape[-1]
            true, along = targets[:, :, ::step, ::step].unbind(1)
            of_classes, of_directions = scores.split([CLASSES, SCORES - CLASSES], 1)
            total = total + _soft_iou(of_classes, true) + _cross_entropy(of_directions, along)
        return total

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        of_classes, _ = _at_whole_side(outputs, targets)
        counted = targets[:, 0] != NO_CLASS
        right = ((of_classes.argmax(1) == targets[:, 0]) & counted).sum((1, 2))
        return (right / counted.sum((1, 2)).clamp(min=1)).sum()

    def metric(self) -> Metric:
        return RoadMetric(self.loss, _at_whole_side)

    def blank_targets(self, inputs: Tensor) -> Tensor:
        return torch.zeros((len(inputs), 2, *inputs.shape[-2:]), dtype=torch.int64, device=inputs.device)

    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        classes, along = target.numpy()
        return self._shown(image, classes == LINE, along, counted=classes != NO_CLASS)

    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """Where it was taken for a line, in the colour of the direction that is the likeliest for one there."""
        scores = unpack(output[None].float(), image.shape[0])[0][0]
        lines = (scores[:CLASSES].argmax(0) == LINE).numpy()
        along = scores[CLASSES : CLASSES + DIRECTIONS].argmax(0).numpy()
        return self._shown(image, lines, along, counted=np.ones_like(lines))

    def scores(self, output: Tensor, size: int) -> Scores:
        """Of the largest map that the model gives; the directions are left out."""
        of_classes = unpack(output[None].float(), size)[0][0, :CLASSES]
        return LineScores(of_classes.softmax(0)[LINE:])

    def _shown(self, image: Bytes, lines: np.ndarray, along: np.ndarray, *, counted: np.ndarray) -> Visualization:
        share = lines[counted].mean() if counted.any() else 0
        legend = tuple(range(len(self.legend))) if lines.any() else ()
        return Visualization(_lay_directions(image, lines, along), f"Lines on {100 * share:.1f} % of it", legend)


def _at_whole_side(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    scores = unpack(outputs, targets.shape[-1])[0]
    of_classes, of_directions = scores.split([CLASSES, SCORES - CLASSES], 1)
    return of_classes, of_directions


def _soft_iou(scores: Tensor, targets: Tensor) -> Tensor:
    """1 less the IoU of each image's lines with likelihoods in place of pixels (Máttyus et al. 2017, section 3.1),
    [n]; of its background where it has no lines.

    The authors' code takes the mean of both classes. Where lines are few, the background then has the larger
    gradient, and nothing is called a line for so long that a short training never gets beyond that.
    """
    counted = targets != NO_CLASS
    likely = scores.softmax(1, dtype=torch.float32)
    has_lines = (targets == LINE).any((1, 2))[:, None, None]
    true = counted & (targets == torch.where(has_lines, LINE, 0))
    likely = torch.where(has_lines, likely[:, LINE], likely[:, 0]) * counted
    both = (likely * true).sum((1, 2))
    either = (likely + true.float()).sum((1, 2)) - both
    return (1 - both / either.clamp(min=1)) * counted.any((1, 2))


def _cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean over each image's lines and that over its background, in equal parts, [n]; 0 where there is neither.

    The authors' code takes the mean over all pixels. Where lines are few and thin, the background then has nearly all
    of the gradient, and a short training learns no directions.
    """
    values = functional.cross_entropy(scores.float(), targets, ignore_index=NO_CLASS, reduction="none")
    of_lines, of_background = (
        (values * there).sum((1, 2)) / there.sum((1, 2)).clamp(min=1)
        for there in (targets < DIRECTIONS, targets == BACKGROUND)
    )
    return (of_lines + of_background) / 2


def _lay_directions(image: Bytes, lines: np.ndarray, along: np.ndarray) -> Bytes:
    """`image` with its lines in the colours of their directions: once around the hues for half a turn, red where they
    lie level; white without a direction.
    """
    colours = np.concatenate([_wheel(), np.full((256 - DIRECTIONS, 3), 255, np.uint8)])[along]
    laid: Bytes = np.where(lines[..., None], image // 4 + colours // 4 * 3, image).astype(np.uint8)
    return laid


def _wheel() -> Bytes:
    """The colour of each direction, uint8 [DIRECTIONS, 3]."""
    hues = np.round(np.arange(DIRECTIONS) * 256 / DIRECTIONS).astype(np.uint8)
    full = np.full(DIRECTIONS, 255, np.uint8)
    return np.asarray(Image.fromarray(np.stack([hues, full, full], 1)[None], "HSV").convert("RGB"))[0]
