"""Changes to models of any kind: their heads, first layer, and frozen parts."""

from __future__ import annotations

import math
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

MAX_HEAD_DEVIATION = 1.5
"""Maximum standard deviation of a head's weights, as a multiple of torch's default.

A head above it is reinitialized.
"""


def find_head(model: nn.Module, classes: int) -> str | None:
    """Return the name of the last Linear or Conv2d layer that has one output per class, or None if there is none."""
    head = None
    for name, module in model.named_modules():
        is_head = isinstance(module, nn.Linear) and module.out_features == classes
        if is_head or (isinstance(module, nn.Conv2d) and module.out_channels == classes):
            head = name
    return head


def reset_large_head(model: nn.Module, head: str) -> None:
    """Initialize the layer `head` with torch's defaults if its weights are much larger than torch's defaults.

    EfficientNet and related models scale the initial weights by the number of classes (torchvision: uniform within 1 /
    sqrt(classes)). With few classes, the first loss is then far above the loss of guessing. For two classes, it is up
    to 7 instead of ln 2.
    """
    layer: Any = model.get_submodule(head)
    default_deviation = 1 / math.sqrt(3 * layer.weight[0].numel())  # as in torch.nn.Linear
    if not layer.weight.is_meta and layer.weight.std() > MAX_HEAD_DEVIATION * default_deviation:
        layer.reset_parameters()


def find_first_conv(model: nn.Module) -> str | None:
    """Return the name of the first convolution, whose input is the image. Return None if there is none."""
    return next((name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)), None)


def match_channels(weight: Tensor, channels: int) -> Tensor:
    """Convert the weights of a first layer, [out, 1 or 3, h, w], to inputs with `channels` channels.

    The output for a gray image stays the same. Channels after the third repeat red, green and blue, and channels of the
    same color share its weight.
    """
    trained_channels = weight.shape[1]
    if trained_channels == channels:
        return weight
    if channels < trained_channels:
        return weight.sum(1, keepdim=True).expand(-1, channels, -1, -1) / channels
    colors = torch.arange(channels) % trained_channels
    return weight[:, colors] / torch.bincount(colors, minlength=trained_channels)[colors].view(1, -1, 1, 1)


def adapt_first_conv(model: nn.Module, channels: int) -> None:
    """Replace the first convolution by one that accepts `channels` channels.

    Does nothing if the convolution was made for neither gray nor color images. The new weights repeat the weights of
    the existing channels in turn, which preserves the standard deviation of their initialization.
    """
    name = find_first_conv(model)
    if name is None:
        return
    previous = model.get_submodule(name)
    assert isinstance(previous, nn.Conv2d)
    if previous.groups != 1 or previous.in_channels not in (1, 3) or previous.in_channels == channels:
        return
    adapted = type(previous)(
        channels,
        previous.out_channels,
        previous.kernel_size,  # type: ignore[arg-type]
        previous.stride,  # type: ignore[arg-type]
        previous.padding,  # type: ignore[arg-type]
        previous.dilation,  # type: ignore[arg-type]
        bias=previous.bias is not None,
        padding_mode=previous.padding_mode,
        device=previous.weight.device,
        dtype=previous.weight.dtype,
    )
    with torch.no_grad():
        adapted.weight.copy_(previous.weight[:, torch.arange(channels) % previous.in_channels])
        if previous.bias is not None and adapted.bias is not None:
            adapted.bias.copy_(previous.bias)
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, adapted)


def set_heads(model: nn.Module, heads: Sequence[str], *, freeze: bool = False) -> None:
    """Mark the modules named in `heads` as the head of a model. All other modules are its backbone.

    If `freeze` is True, the parameters and BatchNorm statistics of the backbone are frozen.
    """
    model.heads_of_footplate = tuple(heads)  # type: ignore[assignment]
    if not freeze:
        return
    head_prefixes = tuple(f"{head}." for head in heads)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(head_prefixes))
    freeze_norms(model, except_in=heads)


def get_heads(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the modules that `set_heads` has marked as the head."""
    return getattr(model, "heads_of_footplate", ())


def freeze_norms(model: nn.Module, except_in: Sequence[str] = ()) -> None:
    """Freeze the statistics of BatchNorm, except in the modules named in `except_in`.

    The frozen layers stay in evaluation mode, even if the model's `train` is called later.
    """
    excepted_prefixes = tuple(f"{name}." for name in except_in)
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not f"{name}.".startswith(excepted_prefixes):
            module.eval()
            # Set on the instance, since tracing and wrapping identify layers by class; bound, so that a deep copy
            # of the model binds it to the copy.
            module.train = types.MethodType(_ignore_train, module)  # type: ignore[method-assign]


def _ignore_train(module: nn.Module, mode: bool = True) -> Any:
    """Set the module to evaluation mode, and return it. It replaces the method `train` of frozen layers."""
    return nn.Module.train(module, False)
