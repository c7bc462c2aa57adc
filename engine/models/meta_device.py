"""Construction of models on the meta device, where they need no memory, and the image sizes that BatchNorm requires."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from engine.contract.catalogue import ANY_SIZE
from engine.torch_compat import BatchNorm

_CREATING_FUNCTIONS = (torch.empty, torch.zeros, torch.ones)
_FILLING_FUNCTIONS = (Tensor.normal_, Tensor.uniform_)
"""Functions that fill a tensor with random numbers, which takes long even for a tensor without values."""
_MAX_TRIED_SIZES = 8
"""Maximum number of image sizes that are tried, from the estimated one down."""


class _CreateOnMeta(TorchFunctionMode):
    """Context manager that makes `torch.empty`, `torch.zeros` and `torch.ones` create tensors on the meta device.

    The tensors are not filled with random numbers.

    These three functions create all parameters and the statistics of BatchNorm. A model can't be moved to the meta
    device after construction, since SSDlite runs an image through its layers while it is built. `torch.device("meta")`
    would move too much, since RegNet computes its widths with tensors.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _FILLING_FUNCTIONS and args[0].is_meta:
            return args[0]
        device = {"device": "meta"} if func in _CREATING_FUNCTIONS else {}
        return func(*args, **{**(kwargs or {}), **device})


def build_on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the model that `build` creates, with all parameters and buffers on the meta device."""
    with _CreateOnMeta():
        model = build()
    return model.to("meta")


def build_skeleton(build: Callable[[], nn.Module]) -> nn.Module | None:
    """Return the model that `build` creates on the meta device, or None if it could not be turned into a usable model.

    Its parameters and buffers can later be replaced by those of a model that was built normally. This isn't possible,
    and None is returned, if the model can't be built on the meta device, if it has a tensor in another attribute, or if
    it uses one parameter under several names, which would become several parameters.
    """
    try:
        model = build_on_meta(build)
    except Exception:  # a model may fail in any way without values
        return None
    name_count = len(list(model.named_parameters(remove_duplicate=False)))
    is_tied = name_count != len(list(model.parameters()))
    if is_tied or any(_has_meta_tensor(vars(module)) for module in model.modules()):
        return None
    return model


def _has_meta_tensor(attributes: Mapping[str, Any]) -> bool:
    """Return True if a module's `attributes`, except parameters and buffers, contain a tensor on the meta device."""
    pending = [value for name, value in attributes.items() if name not in ("_parameters", "_buffers", "_modules")]
    while pending:
        value = pending.pop()
        if isinstance(value, Tensor) and value.is_meta:
            return True
        if isinstance(value, Mapping):
            pending += value.values()
        elif isinstance(value, list | tuple | set):
            pending += value
    return False


def find_largest_single_value_size(model: nn.Module, channels: int, *, smallest: int, usual: int) -> int:
    """Return the largest side of square images at which a BatchNorm gets only one value per channel and image.

    BatchNorm can't train on a single such image. The result is ANY_SIZE if this is the case for all sizes, as after
    global pooling, and 0 if it is the case for no size of at least `smallest`. The model must accept images of the
    `usual` size. Nothing is computed, since the images are on the meta device.
    """
    if not any(isinstance(layer, BatchNorm) for layer in model.modules()):
        return 0
    single_value_layers = {layer for layer, side in _measure_map_sides(model, channels, smallest).items() if side == 1}
    if not single_value_layers:
        return 0
    # A layer that is not reached counts as one with a single value.
    sides_at_usual = _measure_map_sides(model, channels, usual)
    still_single = {layer for layer in single_value_layers if sides_at_usual.get(layer, 1) == 1}
    if still_single:
        # In larger images, a layer still gets one value only after global pooling.
        sides_at_large = _measure_map_sides(model, channels, 4 * usual)
        is_pooled = any(sides_at_large.get(layer, 1) == 1 for layer in still_single)
        return ANY_SIZE if is_pooled else usual
    # An estimate from the strides of the layers.
    size = max(usual // sides_at_usual[layer] for layer in single_value_layers)
    if size % 32 == 0:  # the usual stride, which divides the image size
        return size
    candidates = range(size, max(smallest, size - _MAX_TRIED_SIZES), -1)
    return next((each for each in candidates if 1 in _measure_map_sides(model, channels, each).values()), smallest)


def _measure_map_sides(model: nn.Module, channels: int, image_size: int) -> dict[int, int]:
    """Return the longer side of the smallest feature map that each BatchNorm normalizes, by the index of the layer.

    The images have sides of `image_size` px. Layers that are not reached are left out. The model may change between
    training and evaluation mode.
    """
    side_of_layer: dict[int, int] = {}

    def record(layer: int, features: Tensor) -> Tensor:
        """Record the longer side of the input of BatchNorm `layer` (an index), and return the input as its output."""
        side = max(features.shape[2:], default=1)
        side_of_layer[layer] = min(side, side_of_layer.get(layer, side))
        return features

    layers = [layer for layer in model.modules() if isinstance(layer, BatchNorm)]
    images = torch.zeros(2, channels, image_size, image_size, device="meta")
    for number, layer in enumerate(layers):
        vars(layer)["forward"] = partial(record, number)  # normalization is slow on the meta device
    if not _try_to_run(model.train(), images):  # such as a detector, which needs targets in training
        _try_to_run(model.eval(), images)
    for layer in layers:
        del vars(layer)["forward"]
    return side_of_layer


def _try_to_run(model: nn.Module, images: Tensor) -> bool:
    """Run a model on `images`, and return True if it raises no error.

    The result is False for models that need targets, or that read values of tensors, which don't exist on the meta
    device. The modules before the error have been run, so the caller's replacements of `forward` have recorded them.
    """
    try:
        with torch.no_grad():
            model(images)
    except Exception:
        return False
    return True
