"""Facts about a model for the catalogue, and the error for a model that can't be built."""

from __future__ import annotations

from typing import NamedTuple, Self

from engine.contract.problems import Problem
from engine.contract.weights import Weights


class TaskError(Exception):
    """Error: a model can't be built as the job requests. It names the job's field and a remedy."""

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
    """Model in the catalogue: the fields of `ModelEntry`, for particular numbers of `classes` and `channels`."""

    title: str
    family: str
    image_size: int
    min_image_size: int
    classes: int
    channels: int = 3
    weights: Weights | None = None
    encoder: bool = False
    construction: str = ""
    extra: str = ""
    published: str = ""
