"""Counter of calls that make the host wait for a GPU. It works without a GPU."""

from __future__ import annotations

import traceback
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

WAITING = {
    Tensor.cpu, Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__float__, Tensor.__index__, Tensor.__int__,
    Tensor.masked_select, Tensor.nonzero, Tensor.unique, torch.masked_select, torch.nonzero, torch.unique,
}  # fmt: skip
"""Functions that make the host wait until the GPU has computed their result, except indexing with a mask."""


class WaitCounter(TorchFunctionMode):
    """Counter of calls that make the host wait for a GPU.

    Attributes:
        counts: Number of calls from each line outside torch. Keys are (file, line number, text of the line).
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, int | None, str | None]] = Counter()

    def __torch_function__(self, function: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        is_selection = function is Tensor.__getitem__ or (
            function is Tensor.__setitem__ and isinstance(given[2], Tensor)  # of a number, it is `masked_fill`
        )
        parts = (given[1] if isinstance(given[1], tuple) else (given[1],)) if is_selection else ()
        is_mask = any(isinstance(part, Tensor) and part.dtype == torch.bool for part in parts)
        if function in WAITING or is_mask:
            place = next(each for each in reversed(traceback.extract_stack()[:-1]) if "/torch/" not in each.filename)
            self.counts[place.filename, place.lineno, place.line] += 1
        return function(*given, **options or {})
