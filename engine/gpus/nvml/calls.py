"""Call NVML functions for one GPU or MIG instance.

Unsupported quantities are requested only once. Errors that concern the entire GPU raise exceptions. Source of the error
codes: `nvmlReturn_t` in nvml.h.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class GpuLost(Exception):  # noqa: N818 - describes the machine
    """Raised when a GPU has fallen off the bus or needs a reset."""


class Stopwatch:
    """Stopwatch that adds up the duration of calls to NVML in `spent_s`. The caller resets this sum."""

    def __init__(self) -> None:
        self.spent_s = 0.0

    def time(self, call: Callable[[], Answer]) -> Answer:
        """Call `call`, add the duration to `spent_s`, and return the result."""
        start = time.perf_counter()
        try:
            return call()
        finally:
            self.spent_s += time.perf_counter() - start


class DeviceCalls:
    """Caller of NVML functions for the device `handle`.

    Once a quantity has turned out to be unsupported, it is always None. `answers` is the number of successful calls,
    and `failures` is the number of temporary errors.
    """

    def __init__(self, nvml: ModuleType, handle: Any, stopwatch: Stopwatch) -> None:
        self.nvml = nvml
        self.handle = handle
        self.answers = 0
        self.failures = 0
        self._stopwatch = stopwatch
        self._unsupported: set[object] = set()

    def attempt(self, quantity: object, call: Callable[[], Answer]) -> Answer | None:
        """Return the result of `call`, which reads `quantity`, and count the answer or failure.

        Returns None if the device does not support the quantity, or after a temporary error.

        Raises:
            GpuLost: The GPU does not respond.
            NVMLError: NVML itself is unavailable.
        """
        if quantity in self._unsupported:
            return None
        nvml = self.nvml
        try:
            answer = self._stopwatch.time(call)
        except (nvml.NVMLLibraryMismatchError, AttributeError):  # NVMLLibraryMismatchError is not an NVMLError
            self._unsupported.add(quantity)
            return None
        except nvml.NVMLError as error:
            if error.value in get_lost_codes(nvml):
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
        """Call the NVML function with this name for the device.

        Returns None if it is unsupported or fails temporarily.
        """
        return self.attempt((function, *arguments), lambda: getattr(self.nvml, function)(self.handle, *arguments))

    def lacks(self, quantity: object) -> bool:
        """Return True if a quantity has turned out to be unsupported.

        The `quantity` of a `call` is `(function, *arguments)`.
        """
        return quantity in self._unsupported


def get_lost_codes(nvml: ModuleType) -> tuple[int, ...]:
    """Return the error codes of NVML that mean that a GPU is lost.

    28 is NVML_ERROR_GPU_NOT_FOUND, which older versions of pynvml lack.
    """
    return (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_NOT_FOUND, 28)


def unsupported_codes(nvml: ModuleType) -> tuple[int, ...]:
    """Return the error codes of NVML that mean a permanent failure.

    25 is ARGUMENT_VERSION_MISMATCH, and 26 is DEPRECATED.
    """
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
        25,
        26,
    )


def decode_text(value: str | bytes) -> str:
    """Convert a string from NVML to str. Old versions of pynvml return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def drop_implausible(value: float | None, lowest: float, highest: float) -> float | None:
    """Return `value` if it is in the plausible range, otherwise None.

    Some drivers briefly report implausible values.
    """
    return float(value) if value is not None and lowest <= value <= highest else None


def percent(value: float | None) -> float | None:
    """Return a percentage, or None if it is outside 0 to 100."""
    return drop_implausible(value, 0, 100)


def address(handle: Any) -> int | None:
    """Return the address that a handle points to. Handles of the same device have equal addresses."""
    return ctypes.cast(handle, ctypes.c_void_p).value
