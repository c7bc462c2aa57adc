"""Detection of NaN and infinite numbers in model and optimizer states."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_NUMPY_TYPES = (torch.float16, torch.float32, torch.float64)


def find_first_nonfinite(state: Mapping[str, Any], expected: Collection[str] = ()) -> str:
    """Return the dotted name of the first tensor in a nested `state` with NaN or infinite numbers.

    Returns "" if there is none. The tensors must be on the CPU. Names in `expected` are skipped. Only the calling
    thread computes.
    """
    for name, value in state.items():
        if name in expected:
            continue
        if isinstance(value, Mapping):
            inner = find_first_nonfinite(value, expected)
            if inner:
                return f"{name}.{inner}"
        elif isinstance(value, Tensor) and not is_finite(value):
            return name
    return ""


def find_nonfinite_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers of `model` that contain NaN or infinite numbers. The model must be on the CPU."""
    return [name for name, buffer in model.named_buffers() if not is_finite(buffer)]


def is_finite(tensor: Tensor) -> bool:
    """Return True if all numbers in a tensor on the CPU are finite.

    Sparse tensors and integers are not checked and count as finite. A sum is not finite if one of its terms is not, and
    sums in double precision do not overflow for numbers of lower precision. numpy computes the sum, because torch's
    threads would slow the training.
    """
    if not tensor.is_floating_point() or tensor.layout != torch.strided:
        return True
    detached = tensor.detach()
    numbers = (detached if detached.dtype in _NUMPY_TYPES else detached.float()).numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        total = numbers.sum(dtype=np.float64)
    return bool(np.isfinite(total)) or bool(np.isfinite(numbers).all())
