"""Prepare a model for export, optionally with preprocessing, and with a single output tensor."""

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
from engine.models.tensor_detector import LoadableDetector
from engine.tasks.base import Objective

BATCH, HEIGHT, WIDTH = "batch", "height", "width"


@dataclass(frozen=True)
class Exportable:
    """Module with one input and one output tensor, ready for export.

    Attributes:
        axes: Names of the input dimensions that may have any size, by their index.
        to_input: Function that converts inputs of the trained model to inputs of `module`.
    """

    module: nn.Module
    input_name: str
    output_name: str
    axes: dict[int, str]
    to_input: Callable[[Tensor], Tensor]


def prepare_for_export(model: TrainedModel, options: OnnxOptions) -> Exportable:
    """Prepare a model for export, in fp32 on the CPU.

    Raises CannotConvert for a detector that is not from torchvision.
    """
    core: nn.Module = _ExportedModel(_create_exportable_module(model), model.objective)
    input_layer = _create_input_layer(model) if options.preprocessing else None
    # Dimensions of any size. An input layer takes images [n, h, w, C], the model itself [n, C, h, w].
    axes = {0: BATCH}
    if options.dynamic_size:
        axes |= {1: HEIGHT, 2: WIDTH} if input_layer is not None else {2: HEIGHT, 3: WIDTH}
    name = "inputs" if input_layer is None else input_layer.input_name
    return Exportable(
        module=(core if input_layer is None else nn.Sequential(input_layer, core)).eval(),
        input_name=name,
        output_name=_OUTPUT_NAMES.get(model.task.entry.predicts, "logits"),
        axes=axes,
        to_input=input_layer.invert if input_layer is not None else Tensor.contiguous,
    )


_OUTPUT_NAMES: dict[PredictionKind, str] = {"objects": "detections", "raw": "outputs"}
"""Name of the output for each kind of prediction whose output is not logits."""


def double_width(inputs: Tensor) -> Tensor:
    """Repeat images [n, c, h, w] side by side, so that they are wider than in training and not square."""
    return torch.cat([inputs, inputs], 3)


class _ExportedModel(nn.Module):
    """Model that returns only those outputs that belong in the exported file."""

    def __init__(self, core: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.core = core
        self.objective = objective

    def forward(self, inputs: Tensor) -> Tensor:
        return self.objective.select_exported_outputs(self.core(inputs), inputs)


def _create_exportable_module(model: TrainedModel) -> nn.Module:
    """Return the module to export. Torchvision's detectors get a version with fixed shapes. Raises CannotConvert."""
    if model.task.entry.predicts != "objects":
        return model.module
    from engine.inference.conversion.static_detectors import create_static_detector

    if isinstance(model.module, LoadableDetector):
        return model.module
    static = create_static_detector(model.module, model.channels, model.size)
    if static is None:
        message = f"The post-processing of {type(model.module).__name__} can't be written into a file."
        remedy = "Use Faster R-CNN, Mask R-CNN, RetinaNet, FCOS or SSD of torchvision."
        raise CannotConvert(Problem("model", message, remedy))
    return static


def _create_input_layer(model: TrainedModel) -> _InputLayer | None:
    """Return the module that preprocesses images or points for the model, or None for other samples."""
    mean, std = (torch.tensor(each) for each in (model.preprocessing.mean, model.preprocessing.std))
    if model.task.entry.predicts == "points":
        return _PointPreprocessing(mean, std)
    return _PixelPreprocessing(mean, std) if model.preprocessing.framing else None


class _InputLayer(nn.Module):
    """Preprocessing that becomes part of the exported model. `input_name` is the name of the exported model's input."""

    input_name: str

    def invert(self, inputs: Tensor) -> Tensor:
        """Convert inputs of the trained model back to inputs of the exported model, before the preprocessing."""
        raise NotImplementedError


class _PixelPreprocessing(_InputLayer):
    """Module that converts images, uint8 [n, h, w, channels], to model inputs, like `Normalization`."""

    input_name = "images"

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", (mean * 255).reshape(1, -1, 1, 1))
        self.register_buffer("scale", (1 / (std * 255)).reshape(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        buffers: Any = self
        return (images.permute(0, 3, 1, 2).float() - buffers.mean) * buffers.scale

    def invert(self, inputs: Tensor) -> Tensor:
        buffers: Any = self
        pixels = (inputs / buffers.scale + buffers.mean).round().clamp(0, 255)
        return pixels.to(torch.uint8).permute(0, 2, 3, 1).contiguous()


class _PointPreprocessing(_InputLayer):
    """Module that converts points, float32 [n, points, 3 + f], to model inputs, like `PointBlocks`.

    Positions and features have the values from files. Large positions lose digits in float32, so subtract an offset
    from them first.
    """

    input_name = "points"

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.reshape(1, -1, 1))
        self.register_buffer("std", std.reshape(1, -1, 1))

    def forward(self, points: Tensor) -> Tensor:
        """Center the positions of each cloud [n, points, 3 + f], normalize its values, and return [n, 3 + f, points]."""
        buffers: Any = self
        values = points.transpose(1, 2)
        positions = values[:, :3] - values[:, :3].mean(2, keepdim=True)
        return (torch.cat([positions, values[:, 3:]], 1) - buffers.mean) / buffers.std

    def invert(self, inputs: Tensor) -> Tensor:
        buffers: Any = self
        return (inputs * buffers.std + buffers.mean).transpose(1, 2).contiguous()
