"""Models without memory, to learn their shapes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_MAKERS = (torch.empty, torch.zeros, torch.ones)


class _NoMemory(TorchFunctionMode):
    """Sends what `torch.empty`, `torch.zeros` and `torch.ones` make, which is every parameter and the statistics of
    BatchNorm, to the meta device: SSDlite computes an image while it is built.

    Not `torch.device("meta")`: RegNet computes its widths with tensors while it is built.
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
    """What `build` makes, with all parameters and buffers on the meta device."""
    with _NoMemory():
        model = build()
    return model.to("meta")
