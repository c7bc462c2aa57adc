"""What is explained of a model's output: for each task the number whose gradient tells what speaks for a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.contract.inference.explanation import Box
from engine.inference.trained_model import TrainedModel
from engine.models.networks.road_networks import unpack
from engine.models.road_models import CLASSES as ROAD_SCORES
from engine.tasks.detection import SHOWN
from engine.tasks.multilabel import THRESHOLD

BOXES = 3
"""So many detections are explained of an image where no class is asked for."""


class Target(NamedTuple):
    """`value` is the number that is explained, a tensor without dimensions; the other fields are those of a
    `HeatMap`, but `box` in pixels of what the model is given.
    """

    class_name: str
    value: Tensor
    score: float | None = None
    box: Box | None = None
    note: str = ""


class Kind(NamedTuple):
    """How a task is explained. `forward(module, inputs)` gives outputs with gradients; `targets(model, outputs,
    wanted)` what is explained of those of one image, for the class numbers `wanted` or, without any, for what the
    model finds. `dense` outputs have values for the places of an image, and `pyramid` ones come from several maps of
    the backbone's.
    """

    targets: Callable[[TrainedModel, Any, Sequence[int]], list[Target]]
    forward: Callable[[nn.Module, Tensor], Any] = nn.Module.__call__
    dense: bool = False
    pyramid: bool = False


def _of_class(model: TrainedModel, outputs: Tensor, wanted: Sequence[int]) -> list[Target]:
    likely = outputs[0].detach().softmax(0)
    return _logits(model, outputs, likely, wanted or [int(likely.argmax())])


def _of_labels(model: TrainedModel, outputs: Tensor, wanted: Sequence[int]) -> list[Target]:
    likely = outputs[0].detach().sigmoid()
    found = [number for number in likely.argsort(descending=True).tolist() if likely[number] >= THRESHOLD]
    return _logits(model, outputs, likely, wanted or found[:1] or [int(likely.argmax())])


def _logits(model: TrainedModel, outputs: Tensor, likely: Tensor, wanted: Sequence[int]) -> list[Target]:
    return [Target(model.classes[number], outputs[0, number], float(likely[number])) for number in wanted]


def _of_pixels(model: TrainedModel, outputs: Tensor, wanted: Sequence[int]) -> list[Target]:
    """Seg-Grad-CAM (Vinogradova et al. 2020, section 3): the mean logit of a class over the pixels that are taken for
    it. By default the most frequent class of an image but the first, which is mostly the background.
    """
    logits = outputs[0]
    found = logits.argmax(0)
    if not wanted:
        counts = torch.bincount(found.flatten(), minlength=len(logits))
        wanted = [int(counts[1:].argmax()) + 1 if counts[1:].any() else 0]
    likely = logits.detach().softmax(0)
    return [_over(model.classes[number], logits[number], likely[number], found == number) for number in wanted]


def _over(name: str, logits: Tensor, likely: Tensor, there: Tensor) -> Target:
    """The mean logit [h, w] over the pixels that are `there`, or over all where none is."""
    if there.any():
        return Target(name, logits[there].mean(), float(likely[there].mean()))
    note = f"No pixel is taken for {name}; the map shows what raises its score over the whole image."
    return Target(name, logits.mean(), float(likely.mean()), note=note)


def _of_roads(model: TrainedModel, outputs: Tensor, wanted: Sequence[int]) -> list[Target]:
    scores = unpack(outputs, model.size)[0][:, :ROAD_SCORES]
    return _of_pixels(model, scores, wanted or [ROAD_SCORES - 1])


def _of_edges(model: TrainedModel, outputs: Tensor, wanted: Sequence[int]) -> list[Target]:
    logits = outputs[0, -1]
    likely = logits.detach().sigmoid()
    return [_over(model.classes[0], logits, likely, likely >= 0.5)]


def _of_boxes(model: TrainedModel, outputs: Sequence[dict[str, Tensor]], wanted: Sequence[int]) -> list[Target]:
    """The surest detection of each class that is wanted; without any, the surest ones that would be shown, or the
    surest.
    """
    (found,) = outputs
    scores, labels = found["scores"].detach(), found["labels"] - 1
    order = scores.argsort(descending=True, stable=True).tolist()
    if wanted:
        chosen = [next((row for row in order if labels[row] == number), None) for number in wanted]
    else:
        chosen = [row for row in order if scores[row] >= SHOWN][:BOXES] or order[:1]
    return [
        Target(
            model.classes[int(labels[row])], found["scores"][row], float(scores[row]), tuple(found["boxes"][row].detach().tolist())
        )
        for row in chosen
        if row is not None
    ]  # fmt: skip


def _of_anything(model: TrainedModel, outputs: Tensor, wanted: Sequence[int]) -> list[Target]:
    """Of a task of the user's own: the scores of classes if there is one for each, else the mean of what the model
    gives.
    """
    values = outputs[0]
    if wanted and values.shape[:1] == (len(model.classes),):
        return [Target(model.classes[number], values[number].mean()) for number in wanted]
    return [Target("", values.mean(), note="The map shows what raises the model's output.")]


def _detected(module: Any, inputs: Tensor) -> list[dict[str, Tensor]]:
    detections: list[dict[str, Tensor]] = module.detections(inputs)
    return detections


_BOXES = Kind(_of_boxes, _detected, dense=True, pyramid=True)
KINDS: dict[str, Kind] = {
    "classification": Kind(_of_class),
    "multilabel": Kind(_of_labels),
    "segmentation": Kind(_of_pixels, dense=True),
    "road_extraction": Kind(_of_roads, dense=True),
    "edge_detection": Kind(_of_edges, dense=True),
    "detection": _BOXES,
    "instance_segmentation": _BOXES,
    "custom": Kind(_of_anything),
}
"""How each task is explained that can be."""
