"""Compute heat maps for one image after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from engine.contract.inference.explanation import Method
from engine.inference.explanation.feature_maps import (
    MIN_CELLS,
    Layer,
    NoFeatureMap,
    choose_layer,
    collect_maps,
    collect_tensors,
    record_outputs,
)
from engine.inference.trained_model import TrainedModel
from engine.tasks.explanation import Target

PYRAMID_MODULE = "backbone"
"""Name of the module that computes the feature maps in torchvision's detectors.

Detectors whose module has another name state it in their attribute `pyramid`.
"""


class TargetHeatMap(NamedTuple):
    """Target with the heat map that explains it, [s, s] in 0..1 over the model's input."""

    target: Target
    heat: Tensor


class Explainer:
    """Source of heat maps from one method for one model.

    `layer` is chosen for the first image and used for all others.
    """

    def __init__(self, model: TrainedModel, method: Method) -> None:
        self._model = model
        self._method = method
        self._predicts = model.task.entry.predicts
        self.layer: Layer | None = None  # chosen with the first image

    def explain(self, inputs: Tensor, classes: Sequence[int]) -> list[TargetHeatMap]:
        """Return the heat maps for one image, [1, C, s, s].

        `classes` are the indices of the classes to explain. If it is empty, the model's predictions are explained. The
        first call chooses the layer for all images. Returns an empty list if the model predicts nothing. Raises
        NoFeatureMap.
        """
        layer = self.layer = self.layer or self._choose_layer(inputs, classes)
        module = self._model.module
        with record_outputs(module, [layer.name]) as outputs, torch.enable_grad():
            targets = self._find_targets(self._forward(inputs.detach().requires_grad_()), classes)
        output = outputs[layer.name]
        if self._method == "eigen-cam":
            return self._compute_eigen_heat_maps(output, targets, inputs.shape[-1])
        return [
            TargetHeatMap(target, self._compute_gradient_heat_map(output, target, inputs.shape[-1]))
            for target in targets
        ]

    @property
    def _is_detector(self) -> bool:
        """True if the model is a detector, which computes its outputs from several feature maps of the backbone."""
        return self._predicts == "objects"

    def _forward(self, inputs: Tensor) -> Any:
        """Run the model and return its outputs, or for a detector its detections, which have gradients."""
        module: Any = self._model.module
        return module.detect(inputs) if self._is_detector else module(inputs)

    def _find_targets(self, outputs: Any, classes: Sequence[int]) -> list[Target]:
        """Return the numbers, such as class scores, that the heat maps explain, taken from the model's outputs."""
        model = self._model
        return model.objective.select_explanation_targets(outputs, model.classes, classes, model.size)

    def _compute_gradient_heat_map(self, output: Any, target: Target, side: int) -> Tensor:
        """Compute the heat map of a target, [side, side], from its gradients at the output of the layer."""
        tensors = collect_tensors(output)
        gradients = torch.autograd.grad(target.value, tensors, retain_graph=True, allow_unused=True)
        compute_map = local_grad_cam if self._is_detector else grad_cam
        levels = [
            compute_map(activations, slopes)
            for tensor, gradient in zip(tensors, gradients, strict=True)
            if gradient is not None
            for activations, slopes in zip(
                collect_maps(tensor.detach(), side), collect_maps(gradient, side), strict=True
            )
        ]
        return combine_maps(levels, side) if levels else torch.zeros(side, side)

    def _compute_eigen_heat_maps(self, output: Any, targets: Sequence[Target], side: int) -> list[TargetHeatMap]:
        """Compute heat maps with Eigen-CAM. The result has a single map, since Eigen-CAM does not depend on a class.

        If the layer outputs a pyramid, the coarsest map with enough cells is used.
        """
        levels = collect_maps(output, side)
        large_enough = [level for level in levels if level.shape[1] >= MIN_CELLS]
        level = large_enough[-1] if large_enough else levels[0]
        best_target = targets[0] if targets else Target("", torch.zeros(()))
        target = best_target._replace(class_name="", score=None, box=None, note="Eigen-CAM's map is of no class.")
        return [TargetHeatMap(target, combine_maps([eigen_cam(level.detach())], side))]

    def _choose_layer(self, inputs: Tensor, classes: Sequence[int]) -> Layer:
        """Choose the layer to explain: the last suitable one, or the first level of a detector's pyramid.

        Raises NoFeatureMap if a detector has no feature maps.
        """
        module = self._model.module
        if not self._is_detector:
            return choose_layer(
                module,
                lambda outputs: self._find_targets(outputs, classes)[0].value,
                inputs,
                is_dense=self._predicts in ("pixels", "lines"),
            )
        pyramid: str = getattr(module, "pyramid", PYRAMID_MODULE)
        with record_outputs(module, [pyramid]) as outputs, torch.no_grad():
            self._forward(inputs)
        levels = collect_maps(outputs[pyramid], inputs.shape[-1])
        if not levels:
            raise NoFeatureMap("The detector's backbone gives no maps of features.")
        return Layer(pyramid, (levels[0].shape[1], levels[0].shape[2]))


def grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Compute Grad-CAM (Selvaraju et al. 2017, equations 1 and 2), [h, w].

    `activations` and `gradients` are [C, h, w]. Channels are weighted by their mean gradient and summed. Negative
    values become 0.
    """
    return (gradients.mean((1, 2), keepdim=True) * activations).sum(0).relu()


def local_grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Compute Grad-CAM with the gradient at each position (Zhao and Chan 2023, ODAM, equation 3, without smoothing).

    It is used for detections. With gradients averaged over the image, the map of one detection would highlight all
    objects of its class.
    """
    return (gradients * activations).sum(0).relu()


def eigen_cam(activations: Tensor) -> Tensor:
    """Compute Eigen-CAM (Muhammad and Yeasin 2020), [h, w].

    Activations [C, h, w] are projected onto their first principal component. Its sign is chosen so that the projection
    correlates with the strength of the activations. Negative values become 0.
    """
    height, width = activations.shape[1:]
    positions = activations.flatten(1).T.double()
    centered = positions - positions.mean(0)
    _, _, components = torch.linalg.svd(centered, full_matrices=False)
    projected = centered @ components[0]
    strength = positions.norm(dim=1)
    sign = torch.where((projected * (strength - strength.mean())).sum() < 0, -1.0, 1.0)
    return (sign * projected).relu().reshape(height, width).float()


def combine_maps(levels: Sequence[Tensor], side: int) -> Tensor:
    """Combine heat maps [h, w] of several feature levels.

    They are resized to `side` x `side` pixels and summed, and the sum is scaled to 0..1.
    """
    resized = [
        functional.interpolate(level[None, None], (side, side), mode="bilinear", align_corners=False)[0, 0]
        for level in levels
    ]
    total = torch.stack(resized).sum(0)
    return total / total.max().clamp(min=torch.finfo(total.dtype).tiny)
