"""What a task is: how a batch becomes a loss, and what is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

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


class Task(ABC):
    """One vision task. Stateless: one instance serves all."""

    entry: ClassVar[TaskEntry]

    @abstractmethod
    def build_model(self, job: Job, classes: int, channels: int) -> nn.Module:
        """The plain model on the CPU, in training mode, for pictures with `channels` of 1 or 3.

        Raises TaskError.
        """

    @abstractmethod
    def image_size(self, job: Job) -> int:
        """The side of the square pictures that the model is given, in pixels."""

    @abstractmethod
    def normalisation(self, job: Job, channels: int) -> Statistics:
        """Mean and standard deviation per channel, of pictures scaled to 0..1."""

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each sample, [n]."""

    @abstractmethod
    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """How many samples of the batch are right, as a tensor without dimensions."""

    @abstractmethod
    def measures(self) -> Measures:
        """A new, empty collection."""
