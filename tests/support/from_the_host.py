"""Detector of operations on CPU tensors that would make a GPU wait for the host. It works on tensors without data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_COPIES = (torch.ops.aten._to_copy, torch.ops.aten.copy_)


class HostTensorRecorder(TorchDispatchMode):
    """Recorder of operations with a CPU tensor as argument, which would make a GPU wait.

    Zero-dimensional tensors are passed as kernel arguments, so only copies of them are recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        host = [given for given in args if isinstance(given, Tensor) and given.device.type == "cpu"]
        if any(given.dim() or func.overloadpacket in _COPIES for given in host):
            self.noted.append(str(func))
        return func(*args, **kwargs or {})
