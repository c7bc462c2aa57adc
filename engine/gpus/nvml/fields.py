"""Values that NVML tells several at a call, by numbers of fields, and how fast those grow that count.

Source of the numbers, scopes and units: `NVML_FI_DEV_*` of nvml.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.gpus.nvml.calls import Ask, lost_codes, unsupported_codes

Field = tuple[int, int]
"""The number of a field and its scope: the NVLink that is meant, 0 where there is none to choose."""

MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of the union `nvmlValue_t`, by `nvmlValueType_t`."""


class Fields:
    """Some fields of a GPU. One that it does not tell is asked for once, since that can take a millisecond, too."""

    def __init__(self, ask: Ask, fields: Iterable[Field]) -> None:
        self._ask = ask
        self._fields = list(fields)

    def __bool__(self) -> bool:
        """Whether there is anything left to ask for."""
        return bool(self._fields) and not self._ask.lacks("fields")

    def read(self) -> dict[Field, float]:
        """What is told now, in one call. Raises `GpuLost`."""
        if not self:
            return {}
        return self._ask("fields", lambda: self._take(self._ask.handle)) or {}

    def _take(self, handle: Any) -> dict[Field, float]:
        """Raises the error of a field where none could be told for now, so that it counts as one of the call."""
        nvml = self._ask.nvml
        told: dict[Field, float] = {}
        failed = 0
        untold: set[Field] = set()
        for field in nvml.nvmlDeviceGetFieldValues(handle, self._fields):
            code = field.nvmlReturn
            if code == nvml.NVML_SUCCESS:
                if 0 <= field.valueType < len(MEMBERS):
                    told[(field.fieldId, field.scopeId)] = getattr(field.value, MEMBERS[field.valueType])
            elif code in lost_codes(nvml):
                raise nvml.NVMLError(code)
            elif code in unsupported_codes(nvml):
                untold.add((field.fieldId, field.scopeId))
            else:
                failed = code
        if untold:
            self._fields = [field for field in self._fields if field not in untold]
        if failed and not told:
            raise nvml.NVMLError(failed)
        return told


class Rates:
    """How fast counters grow, in their unit per second, between one reading and the next."""

    def __init__(self) -> None:
        self._before: dict[object, tuple[float, float]] = {}

    def forget(self) -> None:
        """Begins anew."""
        self._before.clear()

    def of(self, counter: object, value: float | None, at: float) -> float | None:
        """The rate up to `at` (monotonic, in seconds); None at first, and where the counter began anew meanwhile."""
        if value is None:
            self._before.pop(counter, None)
            return None
        before = self._before.get(counter)
        self._before[counter] = (at, value)
        if before is None or at <= before[0] or value < before[1]:
            return None
        return (value - before[1]) / (at - before[0])
