"""Read Xids (errors that the driver reports for a GPU) from the events of NVML, without blocking."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

from engine.contract.devices import Xid
from engine.gpus.nvml.calls import Stopwatch, address

XID_EVENT = 8
"""Value of `nvmlEventTypeXidCriticalError` in nvml.h."""
MAX_XIDS = 16
MAX_EVENTS = 256
"""Maximum number of NVML events that a poll reads."""


class Xids:
    """Record of Xids, which keeps the latest `MAX_XIDS` for each watched GPU."""

    def __init__(self, nvml: ModuleType, stopwatch: Stopwatch) -> None:
        self._nvml = nvml
        self._stopwatch = stopwatch
        self._watched: dict[int | None, str] = {}  # UUIDs by the address of the handle
        self._xids: dict[str, tuple[Xid, ...]] = {}  # by UUID, oldest first
        self._events: Any = None  # event set of NVML, which the first watched GPU creates

    def watch(self, handle: Any, uuid: str) -> None:
        """Start to watch the GPU `handle`, if it supports events."""
        nvml = self._nvml
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self._events)
        except nvml.NVMLError:
            return  # unsupported, or not permitted to this user
        self._watched[address(handle)] = uuid

    def of(self, uuid: str) -> tuple[Xid, ...]:
        """Return the recorded Xids of a GPU, oldest first."""
        return self._xids.get(uuid, ())

    def poll(self) -> None:
        """Read and record all pending events."""
        if self._watched:
            self._stopwatch.time(self._read_events)

    def _read_events(self) -> None:
        """Read pending events until there are no more, and record the Xids of watched GPUs."""
        nvml = self._nvml
        for _ in range(MAX_EVENTS):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)  # without waiting
            except nvml.NVMLError:  # a timeout: no more events; other readings detect a lost GPU
                return
            uuid = self._watched.get(address(event.device))
            if uuid is not None and event.eventType == XID_EVENT:
                self._xids[uuid] = (*self.of(uuid), Xid(time.time(), int(event.eventData)))[-MAX_XIDS:]
