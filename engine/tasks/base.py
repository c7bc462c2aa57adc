"""What a task is: which models there are for it, how a batch becomes a loss, and what is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import msgspec
from torch import Tensor, nn

from engine.contract.catalogue import TaskEntry
from engine.contract.job import Job
from engine.contract.legend import LegendEntry
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.decoding.idx import Bytes
from engine.data.formats.registry import kinds_for
from engine.data.loading.base_loader import Finish
from engine.data.randomness import RandomStreams
from engine.data.transforms.device_transforms import Statistics
from engine.metrics.base import Metric
from engine.metrics.registry import WithAdded, added_to
from engine.models.base import ModelInfo
from engine.tasks.predictions import RawScores, Scores


@dataclass(frozen=True)
class DatasetInfo:
    """What an objective needs to know of a job's data. `class_counts` gives how often each class occurs in the
    training split, which has so many `samples`, in these or in pixels, points or boxes of them; asking costs a look
    at the labels.
    """

    classes: tuple[str, ...]
    channels: int = 3
    class_counts: Callable[[], Sequence[float]] = tuple
    samples: int = 0


class Visualization(NamedTuple):
    """How a truth or a prediction is shown: an image, uint8 [h, w, 3], what is to be said of it, and which entries of
    the objective's legend are in it, by their places there.
    """

    image: Bytes
    words: str = ""
    legend: tuple[int, ...] = ()


class Objective(ABC):
    """What one job learns: its loss and its measures, with the classes of its data known.

    `loss_in_model`: the model computes the loss by itself, and is called with inputs and targets in training, of
    which it gives what `loss` takes for its outputs. `compiles`: a trial of torch.compile may pay. `legend` says what
    the colours in its images stand for, where they have a meaning.
    """

    entry: TaskEntry
    legend: tuple[LegendEntry, ...] = ()
    loss_in_model: ClassVar[bool] = False
    compiles: ClassVar[bool] = True

    def extra_inputs(self, targets: Tensor) -> tuple[Tensor, ...]:
        """What a model is given behind its inputs in training."""
        return (targets,) if self.loss_in_model else ()

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, [n]."""

    @abstractmethod
    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor | None:
        """How many samples of the batch are right, as a tensor without dimensions; of a sample that is partly right its
        share. None where there is no such thing.
        """

    @abstractmethod
    def metric(self) -> Metric:
        """A new, empty collection."""

    @abstractmethod
    def blank_targets(self, inputs: Tensor) -> Tensor:
        """Targets for images of the shape of `inputs`, by which a step can be rehearsed, on their device."""

    @abstractmethod
    def show_truth(self, image: Bytes, target: Tensor) -> Visualization:
        """What one sample's target says of it. `image` is what the model was given, uint8 [h, w, 3]; of a sample that
        is no image its input, as an array.
        """

    @abstractmethod
    def show_prediction(self, image: Bytes, output: Tensor) -> Visualization:
        """What the model's output for one sample says of it, on the CPU; as `show_truth`."""

    def scores(self, output: Tensor, size: int) -> Scores:
        """What the model's output for one sample, on the CPU, says of it in numbers; here nothing but the output
        itself. `size` is the side of the image that the model was given, 0 of a sample that is none.
        """
        return RawScores(output)


def with_added_metrics(objective: Objective) -> Objective:
    """`objective`, which also measures what plug-ins add for its task."""
    entry, own = objective.entry, objective.metric
    added = added_to(entry.id, entry.measures)
    if added:
        more = tuple(metric.entry(name) for name, metric in added.items())
        objective.entry = msgspec.structs.replace(entry, measures=(*entry.measures, *more))
        objective.metric = lambda: WithAdded(own(), added)  # type: ignore[method-assign]
    return objective


class Task(ABC):
    """One vision task. Stateless: one instance serves all."""

    entry: ClassVar[TaskEntry]

    @abstractmethod
    def model_names(self) -> tuple[str, ...]:
        """The ids of its models, in the order of the catalogue."""

    @abstractmethod
    def model_info(self, model: str) -> ModelInfo:
        """What is known of one of its models without building it."""

    @abstractmethod
    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        """The plain model on the CPU, in training mode, for images with so many `channels`; it gives one tensor.

        Raises TaskError.
        """

    @abstractmethod
    def image_size(self, job: Job) -> int:
        """The side of the square images that the model is given, in pixels."""

    @abstractmethod
    def normalisation(self, job: Job, channels: int) -> Statistics:
        """Mean and standard deviation per channel, of images scaled to 0..1."""

    @abstractmethod
    def objective(self, job: Job, dataset_info: DatasetInfo) -> Objective:
        """What the job learns of such data."""

    def example_shape(self, job: Job, channels: int) -> tuple[int, ...]:
        """The shape of one sample as the model is given it."""
        size = self.image_size(job)
        return channels, size, size

    def splits(self, job: Job) -> Splits:
        """The job's dataset, opened. Raises DatasetError."""
        opened = open_splits(
            job.dataset,
            val_fraction=job.val_fraction,
            seed=job.seed,
            kinds=kinds_for(self.entry.id, self.entry.annotations),
            format=job.format,
            fold=job.fold,
        )
        return self.prepared(job, opened)

    def finish(self, job: Job, streams: RandomStreams, rank: int) -> Finish | None:
        """What the worker that is the `rank`th of those that load data does last to each batch of training."""
        return None

    def prepared(self, job: Job, splits: Splits) -> Splits:
        """The splits with what this task has to learn of them, where that is more than their folder says."""
        return splits
