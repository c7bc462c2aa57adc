"""What the catalogue is told of a model, and what says that a model cannot be had."""

from __future__ import annotations

from typing import NamedTuple, Self

from engine.contract.problems import Problem
from engine.contract.weights import Weights


class TaskError(Exception):
    """A model cannot be had as the job asks. Carries the job's field and the remedy."""

    def __init__(self, field: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{message} {remedy}".strip())
        self.field = field
        self.message = message
        self.remedy = remedy

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(problem.field, problem.message, problem.remedy)

    @property
    def problem(self) -> Problem:
        return Problem(self.field, self.message, self.remedy)


class ModelInfo(NamedTuple):
    """A model of the catalogue, its fields as in `ModelEntry`; it is described for so many `classes` and `channels`."""

    title: str
    family: str
    image_size: int
    min_image_size: int
    classes: int
    channels: int = 3
    weights: Weights | None = None
    encoder: bool = False
    construction: str = ""
