"""Whether anything asks a GPU to wait for the host, told by tensors that have no values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_COPIES = (torch.ops.aten._to_copy, torch.ops.aten.copy_)


class FromTheHost(TorchDispatchMode):
    """Notes the operations that take a tensor of the CPU's, which a GPU would be waited for to take it, too. A single
    number is handed over with the kernel, unless it is copied.
    """

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        host = [given for given in args if isinstance(given, Tensor) and given.device.type == "cpu"]
        if any(given.dim() or func.overloadpacket in _COPIES for given in host):
            self.noted.append(str(func))
        return func(*args, **kwargs or {})
