"""Field values, which NVML can read in batches, and rates computed from counters.

Source of the numbers, scopes and units: `NVML_FI_DEV_*` in nvml.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.gpus.nvml.calls import DeviceCalls, get_lost_codes, unsupported_codes

Field = tuple[int, int]
"""Number and scope of a field. The scope is the index of an NVLink, or 0."""

MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of the union `nvmlValue_t`, in the order of `nvmlValueType_t`."""


class Fields:
    """Group of field values of a GPU, which are read in one call.

    Unsupported fields are requested only once, since a request may take a millisecond.
    """

    def __init__(self, calls: DeviceCalls, fields: Iterable[Field]) -> None:
        self._calls = calls
        self._fields = list(fields)

    def __bool__(self) -> bool:
        """Return True unless all fields are known to be unsupported."""
        return bool(self._fields) and not self._calls.lacks("fields")

    def read(self) -> dict[Field, float]:
        """Read the supported fields in one call. Fields that can't be read are left out.

        Raises GpuLost if the GPU does not respond.
        """
        if not self:
            return {}
        return self._calls.attempt("fields", lambda: self._read(self._calls.handle)) or {}

    def _read(self, handle: Any) -> dict[Field, float]:
        """Read the fields, and remember the unsupported ones.

        If no field can be read, raise the error of one of them, so that the call counts as failed.
        """
        nvml = self._calls.nvml
        values: dict[Field, float] = {}
        failed = 0
        unsupported: set[Field] = set()
        for field in nvml.nvmlDeviceGetFieldValues(handle, self._fields):
            code = field.nvmlReturn
            if code == nvml.NVML_SUCCESS:
                if 0 <= field.valueType < len(MEMBERS):
                    member = MEMBERS[field.valueType]  # holds the value
                    values[(field.fieldId, field.scopeId)] = getattr(field.value, member)
            elif code in get_lost_codes(nvml):
                raise nvml.NVMLError(code)
            elif code in unsupported_codes(nvml):
                unsupported.add((field.fieldId, field.scopeId))
            else:
                failed = code
        if unsupported:
            self._fields = [field for field in self._fields if field not in unsupported]
        if failed and not values:
            raise nvml.NVMLError(failed)
        return values


class Rates:
    """Rates of counters in units per second, each computed from two successive readings."""

    def __init__(self) -> None:
        self._before: dict[object, tuple[float, float]] = {}  # time and value of the previous reading, by counter

    def reset(self) -> None:
        """Forget the previous readings of all counters."""
        self._before.clear()

    def update(self, counter: object, value: float | None, at: float) -> float | None:
        """Store a reading of `counter`, and return its rate since the previous one, or None if there is none.

        The rate is also None if the counter has decreased, as after a reset. `value` is the present value of the
        counter, and `at` is the time in seconds from `time.monotonic`.
        """
        if value is None:
            self._before.pop(counter, None)
            return None
        before_at, before = self._before.get(counter, (at, value))
        self._before[counter] = (at, value)
        return (value - before) / (at - before_at) if at > before_at and value >= before else None
