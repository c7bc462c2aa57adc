"""Detection of exhausted device memory, and retries with smaller parts of a batch."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from engine.system.format import counted

if TYPE_CHECKING:
    from engine.strategies.base import Strategy

Result = TypeVar("Result")

_WORDS = re.compile(
    r"DefaultCPUAllocator|CUDA error: out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|Cuda failure.*'out of memory'"
)
"""Pattern for out-of-memory errors that PyTorch raises as plain RuntimeErrors."""
_SINGLE_VALUE = "Expected more than 1 value per channel"
"""Text of BatchNorm's error for a part with too few images for statistics."""


class DoesNotFit(Exception):  # noqa: N818 - said of a part of a batch
    """Error: the device's memory can't hold the smallest part of a batch, with `images` images."""

    def __init__(self, images: int) -> None:
        super().__init__(f"the passes of {counted(images, 'image')} do not fit into memory")
        self.images = images


def ran_out(error: BaseException) -> bool:
    """Return True if `error` means that a device, or the host, ran out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _WORDS.search(str(error)) is not None


def run_in_parts(
    process: Callable[[int], Result],
    parts: int,
    images: int,
    *,
    on_retry: Callable[[], object] = lambda: None,
    can_retry: Callable[[], bool] = lambda: True,
) -> tuple[Result, int]:
    """Return the result of `process(parts)` for a batch of `images`, and the number of parts that it needed.

    Each time memory runs out, it is called again with twice as many parts, until a part has one image. Raises
    DoesNotFit if even such a part does not fit.

    Args:
        process: Processes the batch in a number of parts.
        parts: Initial number of parts.
        images: Number of images in the batch.
        on_retry: Called before each retry, after memory has been released.
        can_retry: Returns True as long as nothing irreversible has happened, so that a retry is possible.
    """
    smallest = 0
    while True:
        try:
            return process(parts), parts
        except (RuntimeError, MemoryError, ValueError) as error:
            if smallest and _SINGLE_VALUE in str(error):
                raise DoesNotFit(smallest) from error
            if not ran_out(error) or not can_retry():
                raise
            if parts >= images:
                raise DoesNotFit(1) from error
        # Not in the handler: the exception holds the frames that failed, and they hold the memory (PyTorch's FAQ, "My
        # out of memory exception handler can't allocate memory").
        smallest = -(-images // parts)
        parts = min(2 * parts, images)
        release_memory()
        on_retry()


def release_memory() -> None:
    """Return PyTorch's cached GPU memory to the device, and free objects that only cycles keep alive."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def device_name(strategy: Strategy) -> str:
    """Return the name of the device used by a worker without peers, as the subject of a sentence."""
    device = strategy.device
    if device.type == "cpu":
        return "The CPU"
    return f"GPU {device.index} of the run" if len(strategy.spec.devices) == 1 else "A GPU of the run"
