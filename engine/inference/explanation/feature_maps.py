"""Choose the layer of a model to explain, and convert its output to feature maps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

MIN_CELLS = 4
"""Minimum number of cells per side of a useful feature map. Layers with smaller maps are a last resort."""
_ENCODERS = ("encoder", "backbone")
"""Names of the modules that extract features in segmentation_models_pytorch and torchvision."""
_ATTENTION_NAME = "att"
"""Part of the names of attention modules, which are skipped. Their tensors may have the shape of a map."""


class NoFeatureMap(Exception):  # noqa: N818 - it describes the model
    """Raised when no layer of a model outputs a feature map."""


class Layer(NamedTuple):
    """Layer whose output is explained.

    `grid` is the height and width of its feature map, or of the finest map if it outputs a pyramid.
    """

    name: str
    grid: tuple[int, int]


class _RecordedLayer(NamedTuple):
    """Layer with its recorded output for an example image, and the height and width of its finest feature map."""

    name: str
    output: Any
    grid: tuple[int, int]


def convert_to_map(values: Tensor, side: int) -> Tensor | None:
    """Convert the output of a layer to a feature map [C, h, w], or return None if it has another form.

    The model's input was a square image of `side` pixels. Accepted forms are [1, C, s, s], [1, s, s, C] as in Swin, and
    tokens [1, t + s * s, C] with t leading class tokens.
    """
    if values.ndim == 4 and len(values) == 1:
        _, first, second, third = values.shape
        if second == third and 1 < second <= side:
            return values[0]
        return values[0].permute(2, 0, 1) if first == second and 1 < first <= side else None
    if values.ndim == 3 and len(values) == 1:
        # The tokens form a square grid of equal patches of the image, after a few class tokens.
        cells = math.isqrt(values.shape[1])
        class_tokens = values.shape[1] - cells**2
        if cells > 1 and side % cells == 0 and class_tokens <= cells:
            return values[0, class_tokens:].T.unflatten(1, (cells, cells))
    return None


def collect_tensors(output: Any) -> list[Tensor]:
    """Return the floating-point tensors in the output of a layer, including those in nested mappings and sequences."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Mapping):
        output = list(output.values())
    return [tensor for each in output for tensor in collect_tensors(each)] if isinstance(output, Sequence) else []


def collect_maps(output: Any, side: int) -> list[Tensor]:
    """Return the feature maps [C, h, w] in the output of a layer.

    There is one map, or all maps of a pyramid, finest first. `side` is the side length of the model's input in pixels.
    """
    candidates = (convert_to_map(tensor, side) for tensor in collect_tensors(output))
    levels = [level for level in candidates if level is not None]
    return sorted(levels, key=lambda level: -level.shape[1])


@contextmanager
def record_outputs(module: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Record the outputs of the named layers, in order of execution, when `module` is called inside the context."""
    outputs: dict[str, Any] = {}

    def make_hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        """Return a forward hook that saves a module's last output in `outputs`, in the order of the calls."""

        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            outputs.pop(name, None)
            outputs[name] = output

        return hook

    handles = [module.get_submodule(name).register_forward_hook(make_hook(name)) for name in names]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def choose_layer(module: nn.Module, score: Callable[[Tensor], Tensor], example: Tensor, *, is_dense: bool) -> Layer:
    """Choose the layer whose output is explained, by running `module` on an example input [1, C, s, s].

    For a model with one output for the entire image, the last layer before pooling whose map affects the score is
    chosen. If `is_dense` is True, the model has an output for each pixel, and its last layers resemble this output.
    Therefore the deepest layer is chosen: the end of an encoder, or the last layer with the coarsest map that does not
    contain scores. `score` is a function that returns the number to explain, given the outputs of the model. Raises
    NoFeatureMap if no layer outputs a feature map.
    """
    side = example.shape[-1]
    names = [name for name, _ in module.named_modules() if name and _ATTENTION_NAME not in name.lower()]
    with record_outputs(module, names) as outputs, torch.enable_grad():
        output = module(example.detach().requires_grad_())
        layers = []
        for name, layer_output in outputs.items():
            maps = collect_maps(layer_output, side) if isinstance(layer_output, Tensor) else []
            if maps:
                layers.append(_RecordedLayer(name, layer_output, (maps[0].shape[1], maps[0].shape[2])))
        if is_dense:
            layers = _select_deepest(layers, output.shape[1], side)
        layers = _select_affecting(layers, score(output), side) or layers  # all if none affects it
    if not layers:
        raise NoFeatureMap(
            "The model has no layer with a map of features: none gives values for the parts of an image."
        )
    fine_enough = [layer for layer in layers if min(layer.grid) >= MIN_CELLS]
    chosen = fine_enough[-1] if fine_enough else max(layers, key=lambda layer: layer.grid)
    return Layer(chosen.name, chosen.grid)


def _select_deepest(layers: Sequence[_RecordedLayer], scores: int, side: int) -> list[_RecordedLayer]:
    """Return the layers with the coarsest map of at least `MIN_CELLS` cells per side. The outermost layer comes last.

    If there is an encoder, only its layers are considered. `scores` is the number of channels of the model's output.
    """
    encoder_layers = [each for each in layers if each.name.partition(".")[0] in _ENCODERS]
    # A map with more channels than the output holds features rather than scores.
    features = (
        encoder_layers
        or [each for each in layers if collect_maps(each.output, side)[0].shape[0] > scores]
        or list(layers)
    )
    coarsest = min((each.grid for each in features if min(each.grid) >= MIN_CELLS), default=None)
    return sorted(
        (each for each in features if coarsest is None or each.grid == coarsest), key=lambda each: -each.name.count(".")
    )


def _select_affecting(layers: Sequence[_RecordedLayer], score: Tensor, side: int) -> list[_RecordedLayer]:
    """Return the layers whose feature map affects the score. Layers are left out if only their class token affects it.

    `side` is the side length of the image in pixels. The autograd graph of `score` is freed.
    """
    differentiable = [each for each in layers if each.output.requires_grad]
    if not differentiable or not score.requires_grad:
        return []
    gradients = torch.autograd.grad(score, [each.output for each in differentiable], allow_unused=True)
    return [
        each
        for each, gradient in zip(differentiable, gradients, strict=True)
        if gradient is not None and any(gradient_map.any() for gradient_map in collect_maps(gradient, side))
    ]
