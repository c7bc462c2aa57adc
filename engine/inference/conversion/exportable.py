"""A run's model as it is put into a file: with its preprocessing in front where that is wanted, and with what it
gives made plain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.contract.catalogue import PredictionKind
from engine.contract.inference.conversion import OnnxOptions
from engine.contract.problems import Problem
from engine.inference.conversion.failure import CannotConvert
from engine.inference.trained_model import TrainedModel
from engine.tasks.base import Objective

BATCH, HEIGHT, WIDTH = "batch", "height", "width"


@dataclass(frozen=True)
class Exportable:
    """`module` takes one tensor, named `input_name`, and gives one, named `output_name`. `given` makes what it takes
    of what the model is given; `axes` names the dimensions that may have any size.
    """

    module: nn.Module
    input_name: str
    output_name: str
    axes: dict[int, str]
    given: Callable[[Tensor], Tensor]


def exportable(model: TrainedModel, options: OnnxOptions) -> Exportable:
    """The model in fp32 on the CPU. Raises CannotConvert for a detector that is not one of torchvision's."""
    core: nn.Module = _Plain(_core(model), model.objective)
    prepared = _preparation(model) if options.preprocessing else None
    axes = {0: BATCH}
    if options.dynamic_size:
        axes |= {1: HEIGHT, 2: WIDTH} if prepared is not None else {2: HEIGHT, 3: WIDTH}
    name = "inputs" if prepared is None else prepared.input_name
    return Exportable(
        module=(core if prepared is None else nn.Sequential(prepared, core)).eval(),
        input_name=name,
        output_name=_OUTPUT_NAMES.get(model.task.entry.predicts, "logits"),
        axes=axes,
        given=prepared.undone if prepared is not None else Tensor.contiguous,
    )


_OUTPUT_NAMES: dict[PredictionKind, str] = {"objects": "detections", "raw": "outputs"}
"""Names of outputs that are not logits."""


def widened(inputs: Tensor) -> Tensor:
    """Images [n, c, h, w] twice as wide: of another size than those of the training, and not square."""
    return torch.cat([inputs, inputs], 3)


class _Plain(nn.Module):
    def __init__(self, core: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.core = core
        self.objective = objective

    def forward(self, inputs: Tensor) -> Tensor:
        return self.objective.exported_outputs(self.core(inputs), inputs)


def _core(model: TrainedModel) -> nn.Module:
    if model.task.entry.predicts != "objects":
        return model.module
    from engine.inference.conversion.static_detectors import static_detector

    static = static_detector(model.module, model.channels, model.size)
    if static is None:
        kind = type(model.module).__mro__[2].__name__
        message = f"The post-processing of {kind} can't be written into a file."
        remedy = "Use Faster R-CNN, Mask R-CNN, RetinaNet, FCOS or SSD of torchvision."
        raise CannotConvert(Problem("model", message, remedy))
    return static


def _preparation(model: TrainedModel) -> _Preparation | None:
    """What comes before the model; nothing for samples of the user's own."""
    mean, std = (torch.tensor(each) for each in (model.preprocessing.mean, model.preprocessing.std))
    if model.task.entry.predicts == "points":
        return _FromPoints(mean, std)
    return _FromPixels(mean, std) if model.preprocessing.framing else None


class _Preparation(nn.Module):
    input_name: str

    def undone(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError


class _FromPixels(_Preparation):
    """uint8 [n, h, w, channels] to what the model is given, as `Normalisation` makes it."""

    input_name = "images"

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", (mean * 255).reshape(1, -1, 1, 1))
        self.register_buffer("scale", (1 / (std * 255)).reshape(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        held: Any = self
        return (images.permute(0, 3, 1, 2).float() - held.mean) * held.scale

    def undone(self, inputs: Tensor) -> Tensor:
        held: Any = self
        pixels = (inputs / held.scale + held.mean).round().clamp(0, 255)
        return pixels.to(torch.uint8).permute(0, 2, 3, 1).contiguous()


class _FromPoints(_Preparation):
    """float32 [n, points, 3 + f], positions and features as they stand in files, to what the model is given, as
    `PointBlocks` makes it. Positions of many digits lose some in float32 unless a number near them was taken off
    before.
    """

    input_name = "points"

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.reshape(1, -1, 1))
        self.register_buffer("std", std.reshape(1, -1, 1))

    def forward(self, points: Tensor) -> Tensor:
        held: Any = self
        values = points.transpose(1, 2)
        positions = values[:, :3] - values[:, :3].mean(2, keepdim=True)
        return (torch.cat([positions, values[:, 3:]], 1) - held.mean) / held.std

    def undone(self, inputs: Tensor) -> Tensor:
        held: Any = self
        return (inputs * held.std + held.mean).transpose(1, 2).contiguous()
