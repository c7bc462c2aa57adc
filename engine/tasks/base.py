"""Interfaces for tasks: models, the loss of a batch, metrics, and visualizations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from engine.contract.catalogue import TaskEntry
from engine.contract.images import LegendEntry, Preprocessing
from engine.contract.job import Job
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.datasets.samples import SampleSet
from engine.data.decoding.idx import Bytes
from engine.data.formats.registry import accepted_kinds
from engine.data.loading.base_loader import Finish
from engine.data.randomness import RandomStreams
from engine.data.splits import Labels
from engine.data.transforms.device_transforms import Statistics, fit_statistics
from engine.metrics.base import Metric
from engine.metrics.registry import MetricWithPlugins, find_plugin_metrics
from engine.models import encoders, registry
from engine.models.base import ModelInfo
from engine.tasks.analysis import Analysis
from engine.tasks.explanation import Target, create_output_targets
from engine.tasks.predictions import PointClasses, RawScores, Scores


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about the data of a job that its objective depends on.

    Attributes:
        channels: Number of channels in the inputs.
        class_counts: Function that returns the number of samples, pixels, points or boxes of each class in the training
            split. It reads the labels.
        samples: Number of training samples.
    """

    classes: tuple[str, ...]
    channels: int = 3
    class_counts: Callable[[], Sequence[float]] = tuple
    samples: int = 0


class Visualization(NamedTuple):
    """Drawing of a target or a prediction.

    Attributes:
        image: Pixels, uint8 [h, w, 3].
        text: Text to show next to the image.
        legend: Indices of the entries in the objective's legend that occur in the image.
        cloud: Points in the image, encoded as described at `CLOUD_TEXT`, or "" if the sample is not a point cloud.
    """

    image: Bytes
    text: str = ""
    legend: tuple[int, ...] = ()
    cloud: str = ""


class Objective(ABC):
    """Learning goal of a job: its loss and its metrics for data with known classes.

    Attributes:
        entry: Catalogue entry of the task, with the metrics that plug-ins add.
        legend: Meaning of the colors in visualizations.
        loss_in_model: True if the model computes the loss. In training it is then called with inputs and targets, and
            returns the outputs that `loss` expects.
        compiles: True if torch.compile may make training faster.
        score_threshold: Minimum score of displayed results, or None if only the result with the highest score counts.
        exports_all_outputs: False if exported files lack outputs that the loss needs.
        analysis_type: Class of the analysis that adds to the task's metrics when a model is evaluated.
    """

    entry: TaskEntry
    legend: tuple[LegendEntry, ...] = ()
    loss_in_model: ClassVar[bool] = False
    compiles: ClassVar[bool] = True
    score_threshold: ClassVar[float | None] = None
    exports_all_outputs: ClassVar[bool] = True
    analysis_type: ClassVar[type[Analysis]] = Analysis

    def get_extra_inputs(self, targets: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments that the model receives in training in addition to its inputs.

        These are the targets if the model computes the loss. Otherwise there are none.
        """
        return (targets,) if self.loss_in_model else ()

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample, [n]."""

    @abstractmethod
    def count_correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """Return the number of correct samples in a batch, a 0-dimensional tensor.

        A partly correct sample counts as a fraction. Returns None if this task defines no correct samples.
        """

    @abstractmethod
    def create_metric(self) -> Metric:
        """Create an empty validation metric."""

    @abstractmethod
    def create_blank_targets(self, inputs: Tensor) -> Tensor:
        """Return placeholder targets for a trial step with `inputs`, on the device of the inputs."""

    @abstractmethod
    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        """Draw the target of one sample.

        `image` is the model's input as uint8 [h, w, 3]. If the sample is not an image, it is the input as an array.
        """

    @abstractmethod
    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """Draw the model's output for one sample.

        `output` is on the CPU, and `image` is the same as for `show_truth`.
        """

    def compute_scores(self, output: Tensor, size: int) -> Scores:
        """Convert the model's output for one sample to scores.

        `output` is on the CPU. `size` is the side length of the image that the model received, or 0 if the sample is
        not an image.
        """
        return RawScores(output)

    def create_analysis(self, classes: Sequence[str]) -> Analysis:
        """Create the analysis for the evaluation of a model with these classes."""
        return self.analysis_type(self, classes)

    def select_explanation_targets(
        self, outputs: Any, classes: Sequence[str], requested: Sequence[int], size: int
    ) -> list[Target]:
        """Select the numbers that heat maps explain, such as class scores, from the model's outputs for one image.

        Args:
            outputs: Outputs of the model, [1, ...], or of its method `detect` for detectors. They have gradients.
            classes: Names of the classes.
            requested: Numbers of the classes to explain, or an empty sequence for the classes that the model predicts.
            size: Side length of the image that the model received.
        """
        return create_output_targets(outputs[0], classes, requested)

    def select_exported_outputs(self, outputs: Tensor, inputs: Tensor) -> Tensor:
        """Select the model outputs to include in an exported file. `inputs` are the inputs of the model."""
        return outputs


def add_plugin_metrics(objective: Objective) -> Objective:
    """Add the metrics that plug-ins provide for the task to an objective, which is changed in place, and return it."""
    entry, create_metric = objective.entry, objective.create_metric
    plugin_metrics = find_plugin_metrics(entry.id, entry.metrics)
    if plugin_metrics:
        added_entries = tuple(metric.create_entry(name) for name, metric in plugin_metrics.items())
        objective.entry = msgspec.structs.replace(entry, metrics=(*entry.metrics, *added_entries))
        objective.create_metric = lambda: MetricWithPlugins(create_metric(), plugin_metrics)  # type: ignore[method-assign]
    return objective


class FileSamples(SampleSet):
    """Samples of a single file that is divided for prediction, for example a large point cloud."""

    @abstractmethod
    def get_points(self, index: int) -> tuple[Labels, npt.NDArray[np.bool_]]:
        """Return the indices in the file of a sample's points, int64 [k], and a mask of the points to predict, [k].

        The mask is False for points that only fill up this sample. They are predicted as part of another sample.
        """


class SampleFiles(ABC):
    """Reader and writer for a task's point-cloud files, which contain many points each.

    Attributes:
        noun: Name of such a file in messages.
    """

    noun: ClassVar[str]

    @abstractmethod
    def can_read(self, path: str) -> bool:
        """Return True if the file at `path` probably has a supported format."""

    @abstractmethod
    def open(self, file: str, preprocessing: Preprocessing, job: Job) -> tuple[FileSamples, int]:
        """Open a file for prediction. Returns its samples, without labels, and its number of points.

        Raises the errors of the file's reader.
        """

    @abstractmethod
    def get_output_extension(self, source: str) -> str:
        """Return the extension of the file that `write` creates for the file `source`."""

    @abstractmethod
    def write(self, source: str, target: Path, predicted: PointClasses, values: tuple[int, ...]) -> None:
        """Copy `source` to `target` and add the predicted classes.

        `values` are the labels of the classes in the dataset's files. If it is empty, the class indices are written
        instead. Raises OSError and the errors of the source's reader.
        """


class Task(ABC):
    """Vision task. It has no state, so that a single instance serves all jobs."""

    entry: ClassVar[TaskEntry]
    files: ClassVar[SampleFiles | None] = None
    """Reader and writer of the files that are used for predictions, or None if these are images."""

    @abstractmethod
    def list_models(self) -> tuple[str, ...]:
        """Return the ids of the models, in the order of the catalogue."""

    @abstractmethod
    def describe_model(self, model: str) -> ModelInfo:
        """Describe a model without building it."""

    @abstractmethod
    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        """Build the model on the CPU, in training mode and without wrappers for parallel training.

        The model returns one tensor for an input with `channels` channels.
        """

    @abstractmethod
    def get_image_size(self, job: Job) -> int:
        """Return the side length of the square images that the model receives, in pixels."""

    def get_statistics(self, job: Job) -> Statistics:
        """Return the mean and standard deviation of each color channel that the model's weights were trained with.

        For a model with an encoder, these are the values of the encoder's weights.
        """
        return registry.get_statistics(job.model.name, encoders.IMAGENET)

    def get_normalization(self, job: Job, channels: int) -> Statistics:
        """Return the mean and standard deviation of each channel, for images scaled to 0..1.

        These are the values that the model's weights were trained with. If the images don't have three channels, each
        channel gets the average of the three colors.
        """
        return fit_statistics(self.get_statistics(job), channels)

    @abstractmethod
    def create_objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        """Create the objective of a job, given facts about its data."""

    def get_example_shape(self, job: Job, channels: int) -> tuple[int, ...]:
        """Return the shape of one sample as the model receives it."""
        size = self.get_image_size(job)
        return channels, size, size

    def open_splits(self, job: Job) -> Splits:
        """Open the dataset of a job. Raises DatasetError."""
        opened = open_splits(
            job.data.dataset,
            val_fraction=job.data.val_fraction,
            seed=job.training.seed,
            kinds=accepted_kinds(self.entry.id, self.entry.annotations),
            format=job.data.format,
            fold=job.data.fold,
        )
        return self.prepare_splits(job, opened)

    def create_batch_transform(self, job: Job, streams: RandomStreams, rank: int) -> Finish | None:
        """Create the last transform that this rank's loader applies to training batches, or None if there is none."""
        return None

    def prepare_splits(self, job: Job, splits: Splits) -> Splits:
        """Return the splits with additional targets that this task derives from the annotations."""
        return splits


class ModelModule(Protocol):
    """Interface of a module that contains the models of an image task.

    Attributes:
        IMAGE_SIZE: Default side length of the square images in pixels.
        ON_ENCODER: Ids of the models that are built on the job's encoder.
    """

    IMAGE_SIZE: int
    ON_ENCODER: frozenset[str]

    def list_names(self) -> tuple[str, ...]:
        """Return the ids of the models."""
        ...

    def describe_model(self, name: str) -> ModelInfo:
        """Describe a model without building it."""
        ...

    def build(self, job: Job, classes: int, channels: int, size: int) -> nn.Module:
        """Build the model of a job on the CPU for images of `size` pixels, in training mode. Raises TaskError."""
        ...


class ImageTask(Task):
    """Image task whose models are defined in a single module."""

    module: ModelModule

    def list_models(self) -> tuple[str, ...]:
        return self.module.list_names()

    def describe_model(self, model: str) -> ModelInfo:
        return self.module.describe_model(model)

    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        return self.module.build(job, classes, channels, self.get_image_size(job))

    def get_image_size(self, job: Job) -> int:
        return registry.get_image_size(job, self.module.IMAGE_SIZE)

    def get_statistics(self, job: Job) -> Statistics:
        is_on_encoder = job.model.name in self.module.ON_ENCODER
        return encoders.get_statistics(job.model.encoder) if is_on_encoder else super().get_statistics(job)
