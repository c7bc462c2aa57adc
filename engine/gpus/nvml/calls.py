"""Calls to NVML for one GPU or MIG instance.

Unsupported quantities are requested only once; errors about the entire GPU are raised. Source of the error codes:
`nvmlReturn_t` in nvml.h.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class GpuLost(Exception):  # noqa: N818  a state of the machine rather than a fault of ours
    """Raised when a GPU has fallen off the bus or needs a reset."""


class Stopwatch:
    """Stopwatch that sums the duration of NVML's calls, in seconds, since `spent_s` was set to 0."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def time(self, call: Callable[[], Answer]) -> Answer:
        """Return the result of `call`, and add its duration to the sum."""
        start = time.perf_counter()
        try:
            return call()
        finally:
            self.spent_s += time.perf_counter() - start


class DeviceCalls:
    """Caller of NVML for the device `handle`.

    An unsupported quantity is requested once, and is None afterwards. `answers` and `failures` count successful calls
    and temporary failures.
    """

    def __init__(self, nvml: ModuleType, handle: Any, stopwatch: Stopwatch) -> None:
        self.nvml = nvml
        self.handle = handle
        self.answers = 0
        self.failures = 0
        self._stopwatch = stopwatch
        self._unsupported: set[object] = set()

    def __call__(self, quantity: object, call: Callable[[], Answer]) -> Answer | None:
        """Return the result of `call`; None if the device doesn't support `quantity` or the call fails for now.

        Raises:
            GpuLost: The GPU doesn't respond.
            NVMLError: NVML itself is unavailable.
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

    def call(self, function: str, *arguments: Any) -> Any:
        """Call NVML's `function` for this device; return None if it isn't supported or fails temporarily."""
        return self((function, *arguments), lambda: getattr(self.nvml, function)(self.handle, *arguments))

    def lacks(self, quantity: object) -> bool:
        """Return True if the device is known not to support a quantity: `(function, *arguments)` for `call`."""
        return quantity in self._unsupported


def lost_codes(nvml: ModuleType) -> tuple[int, ...]:
    """Return the error codes of a lost GPU. 28 is NVML_ERROR_GPU_NOT_FOUND, which older pynvml lacks."""
    return (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_NOT_FOUND, 28)


def unsupported_codes(nvml: ModuleType) -> tuple[int, ...]:
    """Return the error codes that are permanent. 25 is ARGUMENT_VERSION_MISMATCH, 26 DEPRECATED."""
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        25,
        26,
    )


def text(value: str | bytes) -> str:
    """Decode a string from NVML, which old modules return as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def within(value: float | None, lowest: float, highest: float) -> float | None:
    """Return `value`, or None if it is implausible, as some drivers briefly report."""
    return float(value) if value is not None and lowest <= value <= highest else None


def percent(value: float | None) -> float | None:
    """Return a percentage, or None if it is outside 0 to 100."""
    return within(value, 0, 100)


def address(handle: Any) -> int | None:
    """Return the address a handle points to, which is equal for handles of the same device."""
    return ctypes.cast(handle, ctypes.c_void_p).value
