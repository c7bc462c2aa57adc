"""NVIDIA's management library through NVIDIA's own module `pynvml`.

To be used in a process of its own: any call here may hang, or end the process natively.
Source: NVML API reference and nvml.h.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from engine.contract.devices import Gpu, NvmlStatus
from engine.gpus import sentences
from engine.gpus.processes import ProcessTable

Answer = TypeVar("Answer")

SYSFS_PCI = Path("/sys/bus/pci/devices")


class NvmlUnavailable(Exception):  # noqa: N818  a state of the machine rather than a fault of ours
    """NVML cannot be used now; `status` and `message` are what the user is told."""

    def __init__(self, status: NvmlStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class GpuLost(Exception):  # noqa: N818
    """The GPU has fallen off the bus, or needs a reset before it answers again."""


class NvmlReader:
    """All GPUs of this host. Raises `NvmlUnavailable` when NVML, or the driver below it, cannot be used."""

    def __init__(self) -> None:
        self._nvml = load_pynvml()
        try:
            self._nvml.nvmlInit()
            self.driver_version = self._driver_version()
            self._devices = self._find_devices()
        except self._nvml.NVMLError as error:
            raise unavailable(self._nvml, error) from error

    @property
    def any_lost(self) -> bool:
        """Whether some GPU was lost, now or from the beginning; only a new process can find it again."""
        return self._lost_at_start or any(device.gpu.lost for device in self._devices)

    def read(self, *, slow: bool) -> tuple[Gpu, ...]:
        """Every GPU now, lost ones with their last values; processes and power limits are renewed if `slow`."""
        try:
            return tuple(device.read(slow=slow) for device in self._devices)
        except self._nvml.NVMLError as error:
            raise unavailable(self._nvml, error) from error

    def _driver_version(self) -> str | None:
        try:
            return text(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return None

    def _find_devices(self) -> list[Device]:
        """The GPUs that may be used. One that is lost from the beginning cannot even tell its UUID."""
        self._lost_at_start = False
        devices = []
        refused = None
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                devices.append(Device(self._nvml, index))
            except GpuLost:
                self._lost_at_start = True
            except self._nvml.NVMLError as error:
                refused = error
        if refused is not None and not devices:
            raise refused
        return devices


class Device:
    """One GPU behind NVML. A quantity that it does not support is asked for once, and is None from then on."""

    def __init__(self, nvml: ModuleType, index: int) -> None:
        self._nvml = nvml
        self._unsupported: set[str] = set()
        self._processes = ProcessTable()
        self._answers = 0
        self._failures = 0
        try:
            self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = text(nvml.nvmlDeviceGetUUID(self._handle))
        except nvml.NVMLError as error:
            if error.value in lost_codes(nvml):
                raise GpuLost from error
            raise
        name = self._ask("name", lambda: nvml.nvmlDeviceGetName(self._handle))
        bus_id = self._ask("pci", lambda: nvml.nvmlDeviceGetPciInfo(self._handle).busId)
        self.gpu = Gpu(
            uuid=uuid,
            name=text(name) if name else "NVIDIA GPU",
            nvml_index=index,
            pci_bus_id=text(bus_id) if bus_id else None,
        )

    def read(self, *, slow: bool) -> Gpu:
        """This GPU now. Raises NVMLError only where all of NVML has failed."""
        if self.gpu.lost:
            return self.gpu  # a stale handle has been seen to crash the driver's library
        if asleep(self.gpu.pci_bus_id):
            self.gpu = msgspec.structs.replace(
                self.gpu, utilization_percent=None, temperature_c=None, power_w=None, memory_used_bytes=None
            )
            return self.gpu
        try:
            self.gpu = self._read_now(slow=slow)
        except GpuLost:
            self.gpu = msgspec.structs.replace(self.gpu, lost=True, lost_since=time.time())
        return self.gpu

    def _read_now(self, *, slow: bool) -> Gpu:
        nvml, handle = self._nvml, self._handle
        self._answers = self._failures = 0
        utilization = self._ask("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        memory = self._memory()
        power_mw = self._ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        now = msgspec.structs.replace(
            self.gpu,
            utilization_percent=percent(utilization.gpu) if utilization is not None else None,
            memory_used_bytes=int(memory.used) if memory is not None and memory.total else None,
            memory_total_bytes=int(memory.total) if memory is not None and memory.total else None,
            temperature_c=self._temperature_c(),
            power_w=power_mw / 1000 if power_mw is not None else None,
        )
        if slow:
            limit_mw = self._power_limit_mw()
            now = msgspec.structs.replace(
                now,
                power_limit_w=limit_mw / 1000 if limit_mw is not None else None,
                processes=self._running(now.memory_total_bytes),
            )
        if self._failures and not self._answers:
            raise GpuLost  # some drivers report a lost GPU as "unknown error", for each call
        return now

    def _memory(self) -> Any:
        """Version 2 where the driver has it, since version 1 counts reserved memory as used."""
        nvml, handle = self._nvml, self._handle
        memory = self._ask("memory v2", lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
        if memory is None and "memory v2" in self._unsupported:
            memory = self._ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        return memory

    def _temperature_c(self) -> float | None:
        nvml, handle, sensor = self._nvml, self._handle, self._nvml.NVML_TEMPERATURE_GPU
        celsius = self._ask("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, sensor))
        if celsius is None and "temperature" in self._unsupported:  # NVIDIA announced the first one's end
            celsius = self._ask("temperature v", lambda: nvml.nvmlDeviceGetTemperatureV(handle, sensor))
        return None if celsius is None else float(celsius)

    def _power_limit_mw(self) -> int | None:
        nvml, handle = self._nvml, self._handle
        limit = self._ask("enforced limit", lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
        if limit is None:
            limit = self._ask("limit", lambda: nvml.nvmlDeviceGetPowerManagementLimit(handle))
        return limit

    def _running(self, memory_total_bytes: int | None) -> Any:
        nvml, handle = self._nvml, self._handle
        lists = []
        for kind in ("Compute", "Graphics"):
            name = f"nvmlDeviceGet{kind}RunningProcesses"
            found = self._ask(kind, lambda name=name: getattr(nvml, name)(handle))  # type: ignore[misc]
            if found is None and kind in self._unsupported:  # drivers before R510 have version 2 only
                old = f"{name}_v2"
                found = self._ask(old, lambda old=old: getattr(nvml, old)(handle))  # type: ignore[misc]
            if found is not None:
                lists.append(found)
        return self._processes.table(lists, memory_total_bytes) if lists else None

    def _ask(self, quantity: str, call: Callable[[], Answer]) -> Answer | None:
        """What `call` returns, None where this GPU does not tell; raises GpuLost, and NVMLError if NVML itself is gone."""
        nvml = self._nvml
        if quantity in self._unsupported:
            return None
        try:
            answer = call()
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
                self._failures += 1
            return None
        self._answers += 1
        return answer


def load_pynvml() -> ModuleType:
    """NVIDIA's module. Raises `NvmlUnavailable` where it is missing, or overwritten by another package."""
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailable("wrong_module", sentences.NO_MODULE) from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer") or not hasattr(pynvml, "nvmlMemory_v2"):
        raise NvmlUnavailable("wrong_module", sentences.WRONG_MODULE)
    return pynvml


def unavailable(nvml: ModuleType, error: Exception) -> NvmlUnavailable:
    """The state that an NVMLError of the whole library stands for. NVMLErrors cannot be keys: they have no hash."""
    code = getattr(error, "value", -1)
    states: dict[int, tuple[NvmlStatus, str]] = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: ("no_library", sentences.NO_LIBRARY),
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: ("no_driver", sentences.NO_DRIVER),
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ("version_mismatch", sentences.VERSION_MISMATCH),
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: ("version_mismatch", sentences.DRIVER_TOO_OLD),
        nvml.NVML_ERROR_NO_PERMISSION: ("no_permission", sentences.NO_PERMISSION),
        nvml.NVML_ERROR_OPERATING_SYSTEM: ("no_permission", sentences.NO_PERMISSION),
    }
    return NvmlUnavailable(*states.get(code, sentences.failed(str(error))))


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


def percent(value: int) -> float | None:
    """A share, None where the driver tells nonsense, as some do for a moment."""
    return float(value) if 0 <= value <= 100 else None


def asleep(pci_bus_id: str | None) -> bool:
    """Whether Linux has suspended the GPU (as laptops do), so that asking it anything would wake it."""
    if pci_bus_id is None or os.name == "nt":
        return False
    domain, _, rest = pci_bus_id.lower().partition(":")
    try:
        status = (SYSFS_PCI / f"{domain[-4:]}:{rest}" / "power" / "runtime_status").read_text()
    except OSError:
        return False
    return status.strip() == "suspended"
