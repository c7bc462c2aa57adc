"""Transforms in an augmentation: their notation, and presets for each kind of task.

A transform is written as its name and numbers, separated by colons: `rotate:10`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from engine.contract.catalogue import AugmentationKind, load_catalogue, suggest_name
from engine.contract.job import Job
from engine.contract.problems import Problem

CLOSING_EPOCHS = 10
"""Number of epochs without mosaic at the end of a run, as in Ultralytics' `close_mosaic`.

It is limited to a tenth of the run.
"""


class _Number(NamedTuple):
    """Number in the notation of a transform, from `minimum` to `maximum`. Without a `default`, it is required."""

    name: str
    minimum: float
    maximum: float
    default: float | None = None
    is_integer: bool = False

    @property
    def limits(self) -> str:
        """Name and range for messages: "a chance from 0 to 1"."""
        return f"{self.name} from {self.minimum:g} to {self.maximum:g}"


class _TransformSpec(NamedTuple):
    """Numbers and restrictions of an augmentation transform, such as "rotate".

    Attributes:
        numbers: Numbers that follow the name of the transform.
        only: Kinds of targets that the transform supports, or () for all.
        why: Reason for the restriction `only`, for messages.
        ordered: True if the second number must not be less than the first.
    """

    numbers: tuple[_Number, ...] = ()
    only: tuple[AugmentationKind, ...] = ()
    why: str = ""
    ordered: bool = False


_CHANCE = _Number("a chance", 0, 1, 0.5)
_AMOUNT = _Number("an amount", 0, 1)

TRANSFORMS: dict[str, _TransformSpec] = {
    "resized_crop": _TransformSpec(
        (_Number("the least share of the area", 0.01, 1), _Number("the largest", 0.01, 1, 1.0)), ordered=True
    ),
    "scale": _TransformSpec((_Number("the least factor", 0.1, 10), _Number("the largest", 0.1, 10)), ordered=True),
    "flip": _TransformSpec((_CHANCE,)),
    "vflip": _TransformSpec((_CHANCE,)),
    "rotate": _TransformSpec((_Number("degrees", 0, 180),)),
    "translate": _TransformSpec((_Number("a share of the side", 0, 1),)),
    "shear": _TransformSpec((_Number("degrees", 0, 60),)),
    "color": _TransformSpec((_AMOUNT,)),
    "hue": _TransformSpec((_Number("a share of the full circle", 0, 0.5),)),
    "gray": _TransformSpec((_CHANCE,)),
    "trivial": _TransformSpec(),
    "randaugment": _TransformSpec((_Number("operations", 1, 10, 2, True), _Number("a magnitude", 0, 30, 9, True))),
    "augmix": _TransformSpec(
        (_Number("a severity", 1, 10, 3, True),), ("images",), "it mixes images that are transformed in different ways"
    ),
    "blur": _TransformSpec((_CHANCE,)),
    "erase": _TransformSpec(
        (_Number("a chance", 0, 1, 0.25),), ("images",), "it would leave labels under what it erases"
    ),
    "mosaic": _TransformSpec(
        (_Number("a chance", 0, 1, 1.0),), ("boxes",), "it puts four images with their boxes together"
    ),
}
"""Declaration of each transform, by name. Numbers that have a default may be omitted in the notation."""


@dataclass(frozen=True)
class Transform:
    """Augmentation transform, such as "rotate", and its parameter values in their order in the notation."""

    name: str
    numbers: tuple[float, ...] = ()


def parse(text: str, kind: AugmentationKind | None = None) -> Transform | Problem:
    """Parse the notation of an augmentation transform, such as "rotate:10".

    Returns a problem if it is invalid, or if the transform doesn't support targets of the given `kind`.
    """
    name, *words = text.strip().split(":")
    spec = TRANSFORMS.get(name)
    if spec is None:
        return _create_problem(f"There is no transform “{name}”.", suggest_name(name, list(TRANSFORMS)))
    if kind is not None and spec.only and kind not in spec.only:
        return _create_problem(f"“{name}” is not for this task: {spec.why}.", "Remove it.")
    required = sum(number.default is None for number in spec.numbers)
    if not required <= len(words) <= len(spec.numbers):
        needs = "takes no numbers"
        if spec.numbers:
            needs = f"needs {' and '.join(number.limits for number in spec.numbers)}"
        return _create_problem(f"“{text}”: {name} {needs}.", f"Write {_format_example(name, spec)}.")
    values = []
    for number, word in zip(spec.numbers, words, strict=False):  # the last numbers may be omitted
        value = _parse_number(word, number)
        if value is None:
            article_and_noun = "a whole number" if number.is_integer else "a number"
            return _create_problem(
                f"“{text}”: “{word}” is not {number.limits}.", f"Give {article_and_noun} within these limits."
            )
        values.append(value)
    omitted = spec.numbers[len(values) :]
    values += [number.default for number in omitted if number.default is not None]
    if spec.ordered:  # the two numbers are a range
        low, high = values
        if low > high:
            return _create_problem(f"“{text}”: {low:g} is above {high:g}.", f"Write {name}:{high:g}:{low:g}.")
    return Transform(name, tuple(values))


@lru_cache(maxsize=1)
def _load_presets() -> dict[str, dict[str, list[str]]]:
    """Return the built-in lists of transforms by `AugmentationKind` and strength ("medium" or "strong")."""
    return tomllib.loads(files("resources").joinpath("augmentation.toml").read_text(encoding="utf-8"))


def find_augmentation_kind(task: str) -> AugmentationKind | None:
    """Return the kind of targets that augmentations transform together with a task's images.

    Returns None for an unknown task, and for a task without images.
    """
    entry = load_catalogue().task(task)
    return entry.augmentation if entry is not None else None


def transforms(job: Job) -> tuple[Transform, ...]:
    """Return the transforms in a job's augmentation.

    The result is empty for the augmentations "none" and "light" (a special crop), and for tasks without images. Invalid
    transforms are skipped, since `checks.training_checks` reports them.
    """
    kind = find_augmentation_kind(job.task)
    if kind is None or job.augmentation.name in ("none", "light"):
        return ()
    texts: Sequence[str] = job.augmentation.transforms
    if job.augmentation.name != "own":
        texts = _load_presets()[kind][job.augmentation.name]
    parsed = [parse(text, kind) for text in texts]
    return tuple(each for each in parsed if isinstance(each, Transform))


def describe(job: Job) -> str:
    """Describe the transforms in a job's augmentation for users, or return "" if there are none."""
    return ", ".join(":".join([each.name, *(f"{number:g}" for number in each.numbers)]) for each in transforms(job))


def last_mosaic_epoch(epochs: int) -> int:
    """Return the last epoch that uses mosaic, in a run of `epochs` epochs.

    The last tenth of the epochs, but at most `CLOSING_EPOCHS`, doesn't use it.
    """
    return epochs - min(CLOSING_EPOCHS, math.ceil(epochs / 10))


def should_mirror(job: Job, classes: Sequence[str], *, images: bool = True) -> bool:
    """Return True if mirrored copies of the training samples have the same meaning as the originals.

    The job's field `mirror` decides this if it is "on" or "off". With "auto", samples are mirrored if they are
    `images`, unless all `classes` are numbers or single letters. Such classes suggest images of characters.
    """
    if job.augmentation.mirror != "auto":
        return job.augmentation.mirror == "on"
    are_characters = bool(classes) and all(map(_is_number_or_letter, classes))
    return images and not are_characters


def _is_number_or_letter(name: str) -> bool:
    return name.isdigit() or (len(name) == 1 and name.isalpha())


def _format_example(name: str, spec: _TransformSpec) -> str:
    """Return a valid notation of a transform for messages, such as "rotate:180"."""
    values = [number.default if number.default is not None else number.maximum for number in spec.numbers]
    return ":".join([name, *(f"{value:g}" for value in values)])


def _parse_number(word: str, number: _Number) -> float | None:
    """Parse the parameter value `word` of a transform. Return None if it isn't valid for the declaration `number`."""
    try:
        value = float(word)
    except ValueError:
        return None
    if number.is_integer and not value.is_integer():
        return None
    return value if number.minimum <= value <= number.maximum else None


def _create_problem(message: str, remedy: str) -> Problem:
    return Problem("transforms", message, remedy)
