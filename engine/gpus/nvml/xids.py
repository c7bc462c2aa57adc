"""Xids: errors that the driver reports of a GPU, taken from NVML's events as they come, without waiting for any."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

from engine.contract.devices import Xid
from engine.gpus.nvml.calls import Stopwatch, address

XID_EVENT = 8
"""`nvmlEventTypeXidCriticalError` of nvml.h."""
KEPT = 16
AT_ONCE = 256
"""Events taken at one time at most."""


class Xids:
    """The latest `KEPT` Xids of every GPU that is watched."""

    def __init__(self, nvml: ModuleType, stopwatch: Stopwatch) -> None:
        self._nvml = nvml
        self._stopwatch = stopwatch
        self._watched: dict[int | None, str] = {}
        self._seen: dict[str, tuple[Xid, ...]] = {}
        self._events: Any = None

    def watch(self, handle: Any, uuid: str) -> None:
        """Watches a GPU from now on, if it reports events."""
        nvml = self._nvml
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self._events)
        except nvml.NVMLError:
            return  # it does not report any, or not to this user
        self._watched[address(handle)] = uuid

    def of(self, uuid: str) -> tuple[Xid, ...]:
        """Those seen of a GPU, the latest last."""
        return self._seen.get(uuid, ())

    def poll(self) -> None:
        """Takes those that have come."""
        if self._watched:
            self._stopwatch.time(self._take)

    def _take(self) -> None:
        nvml = self._nvml
        for _ in range(AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError:  # a timeout: there are no more; a lost GPU is noticed by whoever asks it
                return
            uuid = self._watched.get(address(event.device))
            if uuid is not None and event.eventType == XID_EVENT:
                self._seen[uuid] = (*self.of(uuid), Xid(time.time(), int(event.eventData)))[-KEPT:]
