"""What a task is: which models there are for it, how a batch becomes a loss, and what is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from torch import Tensor, nn

from engine.contract.catalogue import TaskEntry
from engine.contract.job import Job
from engine.contract.problems import Problem

Statistics = tuple[tuple[float, ...], tuple[float, ...]]


class TaskError(Exception):
    """A model cannot be had as the job asks. Carries the job's field and the remedy."""

    def __init__(self, field: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.field = field
        self.message = message
        self.remedy = remedy

    @property
    def problem(self) -> Problem:
        return Problem(self.field, self.message, self.remedy)


class Measures(ABC):
    """Collects a validation's measures batch by batch.

    `counters` is a float64 tensor whose sum over the ranks gives the counters of the whole, whatever the order.
    """

    counters: Tensor

    @abstractmethod
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Adds one batch, on whatever device it is."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """The measures by id; empty where nothing was added."""


class Objective(ABC):
    """What one job learns: its loss and its measures, with the classes of its data known."""

    entry: TaskEntry

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, [n]."""

    @abstractmethod
    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many samples of the batch are right, as a tensor without dimensions; of a sample that is partly right its
        share."""

    @abstractmethod
    def measures(self) -> Measures:
        """A new, empty collection."""

    @abstractmethod
    def blank_targets(self, inputs: Tensor) -> Tensor:
        """Targets for pictures of the shape of `inputs`, by which a step can be rehearsed, on their device."""


class About(NamedTuple):
    """A model of the catalogue, its fields as in `ModelEntry`; it is described for so many `classes` and `channels`."""

    title: str
    family: str
    image_size: int
    min_image_size: int
    classes: int
    channels: int = 3
    weights: tuple[str, ...] = ()
    weights_file: str = ""
    encoder: bool = False


class Task(ABC):
    """One vision task. Stateless: one instance serves all."""

    entry: ClassVar[TaskEntry]

    @abstractmethod
    def model_names(self) -> tuple[str, ...]:
        """The ids of its models, in the order of the catalogue."""

    @abstractmethod
    def about(self, model: str) -> About:
        """What is known of one of its models without building it."""

    @abstractmethod
    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        """The plain model on the CPU, in training mode, for pictures with `channels` of 1 or 3; it gives one tensor.

        Raises TaskError.
        """

    @abstractmethod
    def image_size(self, job: Job) -> int:
        """The side of the square pictures that the model is given, in pixels."""

    @abstractmethod
    def normalisation(self, job: Job, channels: int) -> Statistics:
        """Mean and standard deviation per channel, of pictures scaled to 0..1."""

    @abstractmethod
    def objective(self, job: Job, classes: int) -> Objective:
        """What the job learns of data with so many classes."""
