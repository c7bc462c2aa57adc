"""Targets for explanations: numbers whose gradients show which parts of a sample support a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from engine.contract.inference.explanation import Box


class Target(NamedTuple):
    """Number to explain.

    Attributes:
        class_name: Name of the class, or "" if there is none.
        value: The number, a 0-dimensional tensor with a gradient.
        score: Probability of the class, or None if the output is not a probability.
        box: Box of the object in pixels of the model's input, or None if the target is not an object.
        note: Remark for the user, or "".
    """

    class_name: str
    value: Tensor
    score: float | None = None
    box: Box | None = None
    note: str = ""


def create_class_targets(
    logits: Tensor, probabilities: Tensor, classes: Sequence[str], requested: Sequence[int]
) -> list[Target]:
    """Create a target from the logit of each requested class or, if none is requested, of the most probable class.

    `logits` and `probabilities` are [C], and `requested` are class numbers. The score of a target is the probability of
    its class.
    """
    numbers = requested or [int(probabilities.argmax())]
    return [Target(classes[number], logits[number], float(probabilities[number])) for number in numbers]


def create_pixel_targets(logits: Tensor, classes: Sequence[str], requested: Sequence[int]) -> list[Target]:
    """Create a target for each requested class: the mean of its logits over the pixels predicted as this class.

    This is Seg-Grad-CAM (Vinogradova et al. 2020, section 3). `logits` are [C, h, w]. If no class is requested, the
    target is for the most frequent class in the image, except the first class, which usually is the background. The
    first class is used only if no other class is predicted.
    """
    predicted = logits.argmax(0)
    if not requested:
        counts = torch.bincount(predicted.flatten(), minlength=len(logits))
        requested = [int(counts[1:].argmax()) + 1 if counts[1:].any() else 0]
    probabilities = logits.detach().softmax(0)
    return [
        create_mean_target(classes[number], logits[number], probabilities[number], predicted == number)
        for number in requested
    ]


def create_mean_target(name: str, logits: Tensor, probabilities: Tensor, pixels: Tensor) -> Target:
    """Create a target from the mean of `logits` [h, w] over the pixels where the mask `pixels` is True.

    If no pixel is True, the mean is over all pixels. `name` is the name of the class. The score of the target is the
    mean of `probabilities` [h, w] over the same pixels.
    """
    if pixels.any():
        return Target(name, logits[pixels].mean(), float(probabilities[pixels].mean()))
    note = f"No pixel is taken for {name}; the map shows what raises its score over the whole image."
    return Target(name, logits.mean(), float(probabilities.mean()), note=note)


def create_output_targets(output: Tensor, classes: Sequence[str], requested: Sequence[int]) -> list[Target]:
    """Create a target for each requested class: the mean of its part of `output` [C, ...].

    If no class is requested, or the first dimension of the output is not the number of classes, the only target is the
    mean of the entire output.
    """
    if requested and output.shape[:1] == (len(classes),):
        return [Target(classes[number], output[number].mean()) for number in requested]
    return [Target("", output.mean(), note="The map shows what raises the model's output.")]
