"""Which layer of a model is looked at, and its activations as maps: of convolutions, of tokens, and of feature
pyramids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LEAST = 4
"""A map of fewer cells on a side says little of where something is: of two layers that would do, one with as many is
taken."""
_ENCODERS = ("encoder", "backbone")
"""What segmentation_models_pytorch and torchvision call the part of a model that makes features of images."""
_ATTENTION = "att"
"""Modules with this in their names hold queries, keys and weights of attention, whose shapes may look like a map's."""


class NoFeatureMap(Exception):  # noqa: N818 - it describes the model
    """A model has no layer with a map of features; the text says so."""


class Layer(NamedTuple):
    """A layer by its `name` in the module, and the `grid`, height and width, of its map; of a pyramid that of its
    finest.
    """

    name: str
    grid: tuple[int, int]


class _Seen(NamedTuple):
    name: str
    output: Any
    grid: tuple[int, int]


def as_map(values: Tensor, side: int) -> Tensor | None:
    """A layer's output for one square image of `side` pixels as a map [C, h, w], None where it is none.

    [1, C, s, s] is one, [1, s, s, C] as Swin has it, and tokens [1, t + s * s, C] behind t others, such as those of
    the class.
    """
    if values.ndim == 4 and len(values) == 1:
        _, a, b, c = values.shape
        if 1 < b == c <= side:
            return values[0]
        return values[0].permute(2, 0, 1) if 1 < a == b <= side else None
    if values.ndim == 3 and len(values) == 1:
        cells = math.isqrt(values.shape[1])
        if cells > 1 and side % cells == 0 and values.shape[1] - cells**2 <= cells:
            return values[0, values.shape[1] - cells**2 :].T.unflatten(1, (cells, cells))
    return None


def maps_of(output: Any, side: int) -> list[Tensor]:
    """The maps [C, h, w] in a layer's output: one, or those of a pyramid from the finest to the coarsest."""
    if isinstance(output, Tensor):
        found = as_map(output, side)
        return [found] if found is not None else []
    if isinstance(output, Mapping):
        output = list(output.values())
    if not isinstance(output, Sequence):
        return []
    levels = [found for each in output if isinstance(each, Tensor) and (found := as_map(each, side)) is not None]
    return sorted(levels, key=lambda level: -level.shape[1])


@contextmanager
def recorded(module: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What the layers of these names give when the module is called, those last that are the last to be done."""
    outputs: dict[str, Any] = {}

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_module: nn.Module, _given: Any, output: Any) -> None:
            outputs.pop(name, None)
            outputs[name] = output

        return hook

    handles = [module.get_submodule(name).register_forward_hook(note(name)) for name in names]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def choose_layer(module: nn.Module, score: Callable[[Tensor], Tensor], example: Tensor, *, dense: bool) -> Layer:
    """The layer to look at, found by what the module does with `example` [1, C, s, s], of which `score(outputs)`
    gives a number.

    Of a class of the whole image that is the last layer with a map on which the score depends: behind it there is
    pooling, or only the class token counts. Of `dense` outputs the last layers say what the output says. There it is
    the deepest one: the end of an encoder, else the last of those with the coarsest map that are not scores
    themselves. Raises NoFeatureMap.
    """
    side = example.shape[-1]
    names = [name for name, _ in module.named_modules() if name and _ATTENTION not in name.lower()]
    with recorded(module, names) as outputs, torch.enable_grad():
        made = module(example.detach().requires_grad_())
        seen = [
            _Seen(name, output, (grid[0].shape[1], grid[0].shape[2]))
            for name, output in outputs.items()
            if isinstance(output, Tensor) and (grid := maps_of(output, side))
        ]
        if dense:
            seen = _deepest(seen, made.shape[1], side)
        seen = _depended_on(seen, score(made), side) or seen
    if not seen:
        raise NoFeatureMap(
            "The model has no layer with a map of features: none gives values for the parts of an image."
        )
    fine = [each for each in seen if min(each.grid) >= LEAST] or [max(seen, key=lambda each: each.grid)]
    return Layer(fine[-1].name, fine[-1].grid)


def _deepest(seen: Sequence[_Seen], scores: int, side: int) -> list[_Seen]:
    """Those with the coarsest map that has `LEAST` cells, of an encoder if there is one, the outermost module last."""
    of_encoder = [each for each in seen if each.name.partition(".")[0] in _ENCODERS]
    features = of_encoder or [each for each in seen if maps_of(each.output, side)[0].shape[0] > scores] or list(seen)
    coarsest = min((each.grid for each in features if min(each.grid) >= LEAST), default=None)
    return sorted(
        (each for each in features if coarsest is None or each.grid == coarsest), key=lambda each: -each.name.count(".")
    )


def _depended_on(seen: Sequence[_Seen], score: Tensor, side: int) -> list[_Seen]:
    """Those on whose map, not only on their class token, the score depends."""
    known = [each for each in seen if each.output.requires_grad]
    if not known or not score.requires_grad:
        return []
    gradients = torch.autograd.grad(score, [each.output for each in known], allow_unused=True)
    return [
        each
        for each, gradient in zip(known, gradients, strict=True)
        if gradient is not None and any(level.any() for level in maps_of(gradient, side))
    ]
