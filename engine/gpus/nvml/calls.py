"""Asking one GPU, or MIG instance: what it does not tell is asked for once; what concerns more than one quantity is
raised.

Source of the codes of errors: `nvmlReturn_t` of nvml.h.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class GpuLost(Exception):  # noqa: N818  a state of the machine rather than a fault of ours
    """The GPU has fallen off the bus, or needs a reset before it answers again."""


class Stopwatch:
    """How long NVML's own calls have taken, in seconds, since `spent_s` was last set to zero."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def time(self, call: Callable[[], Answer]) -> Answer:
        """What `call` returns."""
        begun = time.perf_counter()
        try:
            return call()
        finally:
            self.spent_s += time.perf_counter() - begun


class Ask:
    """Asks the device behind `handle`. A quantity that it does not support is asked for once, and is None from then on.

    `answers` and `failures` count the calls that were answered and those that failed for now.
    """

    def __init__(self, nvml: ModuleType, handle: Any, stopwatch: Stopwatch) -> None:
        self.nvml = nvml
        self.handle = handle
        self.answers = 0
        self.failures = 0
        self._stopwatch = stopwatch
        self._unsupported: set[object] = set()

    def __call__(self, quantity: object, call: Callable[[], Answer]) -> Answer | None:
        """What `call` returns, None where this device does not tell that `quantity`.

        Raises `GpuLost`, and NVMLError where NVML itself is gone.
        """
        if quantity in self._unsupported:
            return None
        nvml = self.nvml
        try:
            answer = self._stopwatch.time(call)
        except (nvml.NVMLLibraryMismatchError, AttributeError):  # the former is no NVMLError
            self._unsupported.add(quantity)
            return None
        except nvml.NVMLError as error:
            if error.value in lost_codes(nvml):
                raise GpuLost from error
            if error.value in (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
                raise
            if error.value in unsupported_codes(nvml):
                self._unsupported.add(quantity)
            else:
                self.failures += 1
            return None
        self.answers += 1
        return answer

    def tell(self, function: str, *arguments: Any) -> Any:
        """What NVML's `function` tells of this device, None where it does not."""
        return self((function, *arguments), lambda: getattr(self.nvml, function)(self.handle, *arguments))

    def lacks(self, quantity: object) -> bool:
        """Whether this device is known not to tell that; what `tell` asks for is known by its function and
        arguments.
        """
        return quantity in self._unsupported


def lost_codes(nvml: ModuleType) -> tuple[int, ...]:
    """Errors that say that the GPU is not there any more. 28 is NVML_ERROR_GPU_NOT_FOUND, which pynvml lacked."""
    return (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_NOT_FOUND, 28)


def unsupported_codes(nvml: ModuleType) -> tuple[int, ...]:
    """Errors that will not change while the process lives. 25 is ARGUMENT_VERSION_MISMATCH, 26 DEPRECATED."""
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        25,
        26,
    )


def text(value: str | bytes) -> str:
    """A string of NVML, which old modules give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def within(value: float | None, lowest: float, highest: float) -> float | None:
    """`value`, None where the driver tells nonsense, as some do for a moment."""
    return float(value) if value is not None and lowest <= value <= highest else None


def percent(value: float | None) -> float | None:
    """A share, None where it cannot be one."""
    return within(value, 0, 100)


def address(handle: Any) -> int | None:
    """What a handle points to, by which two of the same device are alike."""
    return ctypes.cast(handle, ctypes.c_void_p).value
