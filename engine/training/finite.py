"""Whether a state holds numbers that are not finite."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_NUMPYS = (torch.float16, torch.float32, torch.float64)


def first_nonfinite(state: Mapping[str, Any], expected: Collection[str] = ()) -> str:
    """The dotted name of the first tensor of `state`, which may be nested, that holds NaN or an infinity; "" where
    none does.

    The tensors are on the CPU; names in `meant` are passed over. It computes in the calling thread alone.
    """
    for name, value in state.items():
        if name in expected:
            continue
        if isinstance(value, Mapping):
            inner = first_nonfinite(value, expected)
            if inner:
                return f"{name}.{inner}"
        elif isinstance(value, Tensor) and not is_finite(value):
            return name
    return ""


def nonfinite_buffers(model: nn.Module) -> list[str]:
    """The names of the buffers of `model`, which is on the CPU, that hold NaN or an infinity."""
    return [name for name, buffer in model.named_buffers() if not is_finite(buffer)]


def is_finite(tensor: Tensor) -> bool:
    """Whether all numbers of a tensor on the CPU are finite; of a sparse one that is not asked.

    By their sum, which is not if one of them is not, and which cannot overflow in double precision for numbers in less.
    numpy's, since torch's would take threads from those that train.
    """
    if not tensor.is_floating_point() or tensor.layout != torch.strided:
        return True
    held = tensor.detach()
    numbers = (held if held.dtype in _NUMPYS else held.float()).numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        total = numbers.sum(dtype=np.float64)
    return bool(np.isfinite(total)) or bool(np.isfinite(numbers).all())
