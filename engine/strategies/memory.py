"""Running out of a device's memory: how that is known, and how a batch is then gone through in smaller parts."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from engine.system.format import counted

if TYPE_CHECKING:
    from engine.strategies.base import Strategy

Made = TypeVar("Made")

_WORDS = re.compile(
    r"DefaultCPUAllocator|CUDA error: out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|Cuda failure.*'out of memory'"
)
"""Out-of-memory errors that PyTorch raises as plain RuntimeErrors."""
_SINGLE_VALUE = "Expected more than 1 value per channel"
"""BatchNorm's error for a part with too few images for statistics."""


class DoesNotFit(Exception):  # noqa: N818 - said of a part of a batch
    """The device's memory does not hold what the smallest part of a batch needs, which `images` many make up."""

    def __init__(self, images: int) -> None:
        super().__init__(f"the passes of {counted(images, 'image')} do not fit into memory")
        self.images = images


def ran_out(error: BaseException) -> bool:
    """Whether `error` says that a device, or the host, had no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _WORDS.search(str(error)) is not None


def in_parts_that_fit(
    make: Callable[[int], Made],
    parts: int,
    images: int,
    *,
    again: Callable[[], object] = lambda: None,
    undone: Callable[[], bool] = lambda: True,
) -> tuple[Made, int]:
    """What `make(parts)` makes of a batch of so many `images`, and in how many parts that was.

    It is called again with twice as many parts each time that memory runs out, until a part holds one image, as long as
    `undone` says that nothing lasting was done; before that, memory is given back and `again` is called. Raises
    DoesNotFit where the smallest parts are still too large.
    """
    smallest = 0
    while True:
        try:
            return make(parts), parts
        except (RuntimeError, MemoryError, ValueError) as error:
            if smallest and _SINGLE_VALUE in str(error):
                raise DoesNotFit(smallest) from error
            if not ran_out(error) or not undone():
                raise
            if parts >= images:
                raise DoesNotFit(1) from error
        # Not in the handler: the exception holds the frames that failed, and they hold the memory (PyTorch's FAQ, "My
        # out of memory exception handler can't allocate memory").
        smallest = -(-images // parts)
        parts = min(2 * parts, images)
        give_back()
        again()


def give_back() -> None:
    """Gives what PyTorch keeps of freed GPU memory back to the device, and frees what only cycles still hold."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def device_name(strategy: Strategy) -> str:
    """What a worker that is alone computes on, as the subject of a sentence."""
    device = strategy.device
    if device.type == "cpu":
        return "The CPU"
    return f"GPU {device.index} of the run" if len(strategy.spec.devices) == 1 else "A GPU of the run"
