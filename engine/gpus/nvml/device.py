"""GPU from its discovery to its loss, including times when it is asleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from engine.contract.devices import Gpu
from engine.gpus.host import HostProcesses
from engine.gpus.nvml import driver_files
from engine.gpus.nvml.calls import DeviceCalls, GpuLost, Stopwatch, decode_text, get_lost_codes
from engine.gpus.nvml.mig import MigInstances
from engine.gpus.nvml.processes import ProcessTable
from engine.gpus.nvml.queries import QuantityReader, ReadRequest, read_identity
from engine.gpus.nvml.traffic import PcieTraffic
from engine.gpus.nvml.xids import Xids


class SharedReaders(NamedTuple):
    """Readers that all GPUs share. `host` and `xids` are None if only basic quantities are read."""

    nvml: ModuleType
    stopwatch: Stopwatch
    host: HostProcesses | None
    xids: Xids | None


class Device:
    """GPU that NVML lists, which may be asleep or lost.

    `index` is its NVML index. `gpu` and `instances` are the latest readings of the GPU and of its MIG instances. If
    `known` is given, it is the last reading of a GPU that is asleep or lost. A sleeping GPU is opened when it wakes,
    and a lost GPU never.

    Raises:
        GpuLost: The GPU does not respond and is not `known`.
        NVMLError: The GPU can't be used and is not `known`.
    """

    def __init__(self, shared: SharedReaders, index: int, known: Gpu | None = None) -> None:
        self._shared = shared
        self._index = index
        self._open_gpu: _OpenGpu | None = None
        if known is None:
            self._open_gpu = _OpenGpu(shared, index, lambda nvml: nvml.nvmlDeviceGetHandleByIndex(index))
            self.gpu = Gpu(**self._open_gpu.identity)
        else:
            self.gpu = known
        self.instances: tuple[Gpu, ...] = ()
        self._may_sleep = driver_files.may_sleep(self.gpu.pci_bus_id)
        self._last_request: ReadRequest | None = None
        self._last_request_at = 0.0
        self._is_skipped = False  # True if the next `read` does nothing, so that the GPU can fall asleep
        self._has_skipped = False  # True if a `read` was skipped since the last one that was not

    @property
    def is_responding(self) -> bool:
        """True if the GPU is neither lost nor asleep."""
        return self._open_gpu is not None and not self.gpu.lost and not self.gpu.asleep

    @property
    def handle(self) -> Any:
        """NVML's handle of the GPU, or None if it has not been opened."""
        return None if self._open_gpu is None else self._open_gpu.calls.handle

    @property
    def traffic(self) -> PcieTraffic | None:
        """PCIe measurement of the GPU, or None if the GPU is not read at present."""
        if self._open_gpu is None or not self.is_responding or self._is_skipped:
            return None
        return self._open_gpu.quantities.traffic

    @property
    def readings(self) -> tuple[Gpu, ...]:
        """Latest readings of the GPU and its MIG instances. Empty for a sleeping GPU whose UUID is unknown."""
        return (self.gpu, *self.instances) if self.gpu.uuid else ()

    def update_sleep(self, request: ReadRequest) -> None:
        """Update whether the GPU is asleep. Call this before `read`.

        If the GPU may fall asleep, the next call of `read` is skipped.
        """
        self._is_skipped = self._should_skip(request)
        self._has_skipped |= self._is_skipped
        if self.gpu.lost or driver_files.is_asleep(self.gpu.pci_bus_id) == self.gpu.asleep:
            return
        if self.gpu.asleep:  # it has woken up
            self.gpu = msgspec.structs.replace(self.gpu, asleep=False)
            return
        # It has fallen asleep. Drop all readings except those that remain valid.
        values = {} if self._open_gpu is None else self._open_gpu.identity
        self.gpu = Gpu(**values, memory_total_bytes=self.gpu.memory_total_bytes, xids=self.gpu.xids, asleep=True)
        self.instances = ()

    def read(self, request: ReadRequest) -> None:
        """Read the GPU, and update `gpu` and `instances`. Raises NVMLError only if NVML as a whole has failed."""
        if self.gpu.lost or self.gpu.asleep or self._is_skipped:
            return  # a stale handle can crash the driver's library
        if self._has_skipped:
            request = request._replace(processes_due=True, slow_due=True)  # they may have been due in a skipped reading
            self._has_skipped = False
        self._last_request, self._last_request_at = request, time.monotonic()
        try:
            if self._open_gpu is None:
                self._open_gpu = self._open()
            self.gpu, self.instances = self._open_gpu.read(request)
        except GpuLost:
            now = time.time()
            self.gpu = msgspec.structs.replace(self.gpu, lost=True, lost_since=now)
            self.instances = tuple(
                msgspec.structs.replace(instance, lost=True, lost_since=now) for instance in self.instances
            )

    def _should_skip(self, request: ReadRequest) -> bool:
        """Return True if a reading should be skipped so that the GPU may fall asleep.

        That is the case if the GPU is idle and no new quantity is requested.
        """
        if not self._may_sleep or self._last_request is None or request.visible != self._last_request.visible:
            return False
        is_idle = self.gpu.utilization_percent == 0 and not self.gpu.processes
        return is_idle and time.monotonic() - self._last_request_at < driver_files.IDLE_PAUSE_S

    def _open(self) -> _OpenGpu:
        """Open a GPU that has woken up. Raises GpuLost if it is lost."""
        bus_id = self.gpu.pci_bus_id or ""
        try:
            return _OpenGpu(self._shared, self._index, lambda nvml: nvml.nvmlDeviceGetHandleByPciBusId(bus_id))
        except self._shared.nvml.NVMLError as error:
            raise GpuLost from error


class _OpenGpu:
    """GPU that has been opened, with the readers of its quantities."""

    def __init__(self, shared: SharedReaders, index: int, find: Callable[[ModuleType], Any]) -> None:
        """Open the GPU, and prepare all readers of its quantities. Raises GpuLost or NVMLError.

        `index` is its NVML index, and `find` returns its handle.
        """
        nvml = shared.nvml
        try:
            handle = shared.stopwatch.time(lambda: find(nvml))
            uuid = decode_text(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError as error:
            if error.value in get_lost_codes(nvml):
                raise GpuLost from error
            raise
        self.calls = DeviceCalls(nvml, handle, shared.stopwatch)
        pci = self.calls.call("nvmlDeviceGetPciInfo")
        self.identity = read_identity(self.calls, uuid, index, decode_text(pci.busId) if pci is not None else None)
        processes = ProcessTable(self.calls, shared.host)
        self.quantities = QuantityReader(self.calls, shared.stopwatch, processes, self.identity)
        self._instances = MigInstances(self.calls, shared.stopwatch, self.identity, shared.host)
        self._xids = shared.xids
        if self._xids is not None:
            self._xids.watch(handle, uuid)

    def read(self, request: ReadRequest) -> tuple[Gpu, tuple[Gpu, ...]]:
        """Read the requested quantities of the GPU and of its MIG instances."""
        gpu = self.quantities.read(request)
        instances = self._instances.read(request)
        xids = () if self._xids is None else self._xids.of(gpu.uuid)
        if xids or self._instances.enabled is not None:
            gpu = msgspec.structs.replace(gpu, xids=xids, mig_enabled=self._instances.enabled)
        return gpu, instances
