"""Detection of out-of-memory errors, and retries with smaller parts of a batch."""

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

_OUT_OF_MEMORY = re.compile(
    r"DefaultCPUAllocator|CUDA error: out of memory|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|Cuda failure.*'out of memory'"
)
"""Pattern for out-of-memory errors that PyTorch raises as plain RuntimeErrors."""
_SINGLE_VALUE = "Expected more than 1 value per channel"
"""Text of BatchNorm's error for a batch that is too small for statistics."""


class DoesNotFit(Exception):  # noqa: N818 - reads as a condition
    """Raised when a batch does not fit into memory even in parts of `images` images."""

    def __init__(self, images: int) -> None:
        super().__init__(f"the passes of {counted(images, 'image')} do not fit into memory")
        self.images = images


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if `error` reports that the device or the host ran out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(str(error)) is not None


def run_in_parts(
    process: Callable[[int], Result],
    parts: int,
    images: int,
    *,
    on_retry: Callable[[], object] = lambda: None,
    can_retry: Callable[[], bool] = lambda: True,
) -> tuple[Result, int]:
    """Call `process(parts)`, doubling `parts` whenever memory runs out. Return its result and the final `parts`.

    Raises DoesNotFit if memory is too small even for parts with one image, or with the fewest images that BatchNorm
    accepts.

    Args:
        process: Processes the batch in a number of parts.
        parts: Initial number of parts.
        images: Number of images in the batch.
        on_retry: Called before each retry, after memory has been released.
        can_retry: Returns False once something irreversible has happened, which rules out a retry.
    """
    failed_size = 0  # images in the largest part when memory last ran out
    while True:
        try:
            return process(parts), parts
        except (RuntimeError, MemoryError, ValueError) as error:
            if failed_size and _SINGLE_VALUE in str(error):  # BatchNorm needs several values per part
                raise DoesNotFit(failed_size) from error
            if not is_out_of_memory(error) or not can_retry():
                raise
            if parts >= images:
                raise DoesNotFit(1) from error
        # Not in the handler, where the exception's frames still hold the memory (PyTorch's FAQ, "My out of memory
        # exception handler can't allocate memory").
        failed_size = -(-images // parts)
        parts = min(2 * parts, images)
        release_memory()
        on_retry()


def release_memory() -> None:
    """Free objects in reference cycles and return PyTorch's cached GPU memory to the device."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def device_name(strategy: Strategy) -> str:
    """Return the name of the device that ran out of memory, for the start of a sentence.

    With several GPUs, it can be any of them, since the ranks only agree that one of them ran out of memory.
    """
    device = strategy.device
    if device.type == "cpu":
        return "The CPU"
    return f"GPU {device.index} of the run" if len(strategy.spec.devices) == 1 else "A GPU of the run"
