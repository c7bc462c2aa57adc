"""Descriptions of models, and the error raised for a model that can't be built."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Self

import msgspec
from torch import nn

from engine.contract.images import image_size_problem
from engine.contract.problems import Problem
from engine.contract.weights import Weights
from engine.data.transforms.device_transforms import Statistics


class TaskError(Exception):
    """Raised when a model can't be built as the job requests. It has the name of the job field and a remedy."""

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


def validate_image_size(title: str, size: int, smallest: int, step: int = 1) -> None:
    """Raise TaskError unless `size` px is a multiple of `step` and at least `smallest`. `title` is the model's name."""
    problem = image_size_problem(title, size, smallest, step)
    if problem is not None:
        raise TaskError.of(problem)


class ModelInfo(NamedTuple):
    """Facts about a model for its entry in the catalogue.

    The catalogue measures the other facts on a model with `classes` classes and `channels` channels. All other fields
    here are fields of `ModelEntry` with the same meaning.
    """

    title: str
    family: str
    image_size: int
    min_image_size: int
    classes: int
    channels: int = 3
    weights: Weights | None = None
    encoder: bool = False
    extra: str = ""
    published: str = ""
    own_loss: bool = False
    image_size_step: int = 1


class Model(NamedTuple):
    """Model that a plug-in adds to one of the tasks.

    `build(classes, channels)` returns the model with new weights. If `options` is a Struct of options
    (`engine.contract.options`), the call is `build(classes, channels, options)`. The meaning of `classes` and of the
    outputs depends on the task, as it does for a Python file (resources/docs/extending.md).

    Attributes:
        family: Heading for the model in lists of models.
        image_size: Default side length of images in pixels.
        min_image_size: Minimum side length of images in pixels.
        statistics: Mean and standard deviation of each channel of the images that `weights` were trained with, or None
            for the task's defaults.
        weights: Source of pretrained weights, or None.
        own_loss: True if the model computes its own losses for segmentation.
        extra: Optional dependency of Footplate (extra of its package) that the model needs, or "".
        published: Accuracy of `weights` with its source, or "".
    """

    title: str
    task: str
    build: Callable[..., nn.Module]
    family: str = "Plug-ins"
    image_size: int = 224
    min_image_size: int = 1
    statistics: Statistics | None = None
    weights: Weights | None = None
    own_loss: bool = False
    extra: str = ""
    published: str = ""
    options: type[msgspec.Struct] | None = None

    def describe_model(self, classes: int) -> ModelInfo:
        """Return the facts for the model's entry in the catalogue, which are valid for this number of `classes`."""
        info = ModelInfo(self.title, self.family, self.image_size, self.min_image_size, classes, weights=self.weights)
        return info._replace(extra=self.extra, published=self.published, own_loss=self.own_loss)
