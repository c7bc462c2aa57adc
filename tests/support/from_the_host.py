"""Whether anything asks a GPU to wait for the host, told by tensors that have no values."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class FromTheHost(TorchDispatchMode):
    """Notes the operations that take a tensor of the CPU's, which a GPU would be waited for to take it, too."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(isinstance(given, Tensor) and given.device.type == "cpu" for given in args):
            self.noted.append(str(func))
        return func(*args, **kwargs or {})
