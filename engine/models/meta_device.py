"""Models without memory, to learn their shapes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_MAKERS = (torch.empty, torch.zeros, torch.ones)


class _NoMemory(TorchFunctionMode):
    """Mode that moves tensors of `torch.empty`, `torch.zeros` and `torch.ones` to the meta device.

    These are all parameters and the statistics of BatchNorm. SSDlite runs an image through its layers while it is built, so
    that they must be there already; `torch.device("meta")` would move too much, since RegNet computes its widths with tensors.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in _MAKERS:
            given["device"] = "meta"
        return func(*args, **given)


def on_meta(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the model that `build` makes, with all parameters and buffers on the meta device."""
    with _NoMemory():
        model = build()
    return model.to("meta")
