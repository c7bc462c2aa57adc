"""One GPU behind NVML, from being found to being lost, with the times in between that it sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from engine.contract.devices import Gpu
from engine.gpus.host import HostProcesses
from engine.gpus.nvml import sleep
from engine.gpus.nvml.calls import Ask, GpuLost, Stopwatch, lost_codes, text
from engine.gpus.nvml.mig import MigInstances
from engine.gpus.nvml.processes import ProcessTable
from engine.gpus.nvml.queries import Quantities, Wanted, identity
from engine.gpus.nvml.traffic import PcieTraffic
from engine.gpus.nvml.xids import Xids


class Tools(NamedTuple):
    """What all GPUs of a reader share. `host` and `xids` are None where they are not wanted."""

    nvml: ModuleType
    stopwatch: Stopwatch
    host: HostProcesses | None
    xids: Xids | None


class Device:
    """A GPU by its index. One that is `known` to sleep is only met when it wakes, and one known to be lost never.
    Raises `GpuLost` and NVMLError if it is neither.

    `gpu` and `instances` are its row and those of its MIG instances, as told last.
    """

    def __init__(self, tools: Tools, index: int, known: Gpu | None = None) -> None:
        self._tools = tools
        self._index = index
        self._awake: _Awake | None = None
        if known is None:
            self._awake = _Awake(tools, index, lambda nvml: nvml.nvmlDeviceGetHandleByIndex(index))
            self.gpu = Gpu(**self._awake.identity)
        else:
            self.gpu = known
        self.instances: tuple[Gpu, ...] = ()
        self._may_sleep = sleep.may_sleep(self.gpu.pci_bus_id)
        self._asked: Wanted | None = None
        self._asked_at = 0.0
        self._left_alone = self._missed = False

    @property
    def answering(self) -> bool:
        """Whether it can be asked: neither lost nor asleep."""
        return self._awake is not None and not self.gpu.lost and not self.gpu.asleep

    @property
    def handle(self) -> Any:
        """NVML's handle of an answering GPU."""
        return None if self._awake is None else self._awake.ask.handle

    @property
    def traffic(self) -> PcieTraffic | None:
        """What measures PCIe of a GPU that is asked now."""
        if self._awake is None or not self.answering or self._left_alone:
            return None
        return self._awake.quantities.traffic

    @property
    def rows(self) -> tuple[Gpu, ...]:
        """The GPU and its instances; nothing while it sleeps and its UUID is not known yet."""
        return (self.gpu, *self.instances) if self.gpu.uuid else ()

    def look(self, wanted: Wanted) -> None:
        """Whether it sleeps now, or is left alone so that it can. To be called before anything is asked."""
        self._left_alone = self._rests(wanted)
        self._missed |= self._left_alone
        if self.gpu.lost or sleep.asleep(self.gpu.pci_bus_id) == self.gpu.asleep:
            return
        if self.gpu.asleep:
            self.gpu = msgspec.structs.replace(self.gpu, asleep=False)
            return
        values = {} if self._awake is None else self._awake.identity
        self.gpu = Gpu(**values, memory_total_bytes=self.gpu.memory_total_bytes, xids=self.gpu.xids, asleep=True)
        self.instances = ()

    def read(self, wanted: Wanted) -> None:
        """Renews the rows. Raises NVMLError only where all of NVML has failed."""
        if self.gpu.lost or self.gpu.asleep or self._left_alone:
            return  # a stale handle has been seen to crash the driver's library
        if self._missed:
            wanted = wanted._replace(processes_due=True, slow_due=True)
            self._missed = False
        self._asked, self._asked_at = wanted, time.monotonic()
        try:
            if self._awake is None:
                self._awake = self._meet()
            self.gpu, self.instances = self._awake.read(wanted)
        except GpuLost:
            now = time.time()
            self.gpu = msgspec.structs.replace(self.gpu, lost=True, lost_since=now)
            self.instances = tuple(
                msgspec.structs.replace(instance, lost=True, lost_since=now) for instance in self.instances
            )

    def _rests(self, wanted: Wanted) -> bool:
        """Whether it was idle a moment ago, may fall asleep, and nothing new has come into sight."""
        if not self._may_sleep or self._asked is None or wanted.shown != self._asked.shown:
            return False
        idle = self.gpu.utilization_percent == 0 and not self.gpu.processes
        return idle and time.monotonic() - self._asked_at < sleep.REST_S

    def _meet(self) -> _Awake:
        """A GPU that has woken. Raises `GpuLost` if it cannot be used."""
        bus_id = self.gpu.pci_bus_id or ""
        try:
            return _Awake(self._tools, self._index, lambda nvml: nvml.nvmlDeviceGetHandleByPciBusId(bus_id))
        except self._tools.nvml.NVMLError as error:
            raise GpuLost from error


class _Awake:
    """What asks a GPU that has been met. `find` gives its handle."""

    def __init__(self, tools: Tools, index: int, find: Callable[[ModuleType], Any]) -> None:
        nvml = tools.nvml
        try:
            handle = tools.stopwatch.time(lambda: find(nvml))
            uuid = text(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError as error:
            if error.value in lost_codes(nvml):
                raise GpuLost from error
            raise
        self.ask = Ask(nvml, handle, tools.stopwatch)
        pci = self.ask.tell("nvmlDeviceGetPciInfo")
        self.identity = identity(self.ask, uuid, index, text(pci.busId) if pci is not None else None)
        processes = ProcessTable(self.ask, tools.host)
        self.quantities = Quantities(self.ask, tools.stopwatch, processes, self.identity)
        self._instances = MigInstances(self.ask, tools.stopwatch, self.identity, tools.host)
        self._xids = tools.xids
        if self._xids is not None:
            self._xids.watch(handle, uuid)

    def read(self, wanted: Wanted) -> tuple[Gpu, tuple[Gpu, ...]]:
        """The rows of the GPU and of its instances."""
        gpu = self.quantities.read(wanted)
        instances = self._instances.read(wanted)
        xids = () if self._xids is None else self._xids.of(gpu.uuid)
        if xids or self._instances.enabled is not None:
            gpu = msgspec.structs.replace(gpu, xids=xids, mig_enabled=self._instances.enabled)
        return gpu, instances
