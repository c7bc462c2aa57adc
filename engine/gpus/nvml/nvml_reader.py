"""Reader of all GPUs on this host, which uses NVIDIA's Python module `pynvml`.

Use it in a separate process, because any call may hang or crash. Sources: NVML API reference and nvml.h.
"""

from __future__ import annotations

import time
from types import ModuleType

from engine.contract.devices import Gpu, NvmlStatus, SnapshotRequest, Topology
from engine.gpus import sentences
from engine.gpus.host import HostProcesses
from engine.gpus.nvml.calls import GpuLost, Stopwatch, decode_text
from engine.gpus.nvml.device import Device, SharedReaders
from engine.gpus.nvml.driver_files import (
    create_lost_gpu,
    denied_files,
    is_driver_loaded,
    is_in_container,
    read_sleeping_gpus,
)
from engine.gpus.nvml.queries import ReadRequest
from engine.gpus.nvml.topology import Node, read_topology
from engine.gpus.nvml.traffic import measure
from engine.gpus.nvml.xids import Xids

READ_INTERVALS_S = {"processes": 2.0, "slow": 5.0, "links": 60.0}
"""Seconds between readings of the groups of quantities that are not read every time.

Listing processes takes milliseconds. Reading the "slow" group, fans and error counters, takes 0.1 ms.
"""
MAX_EARLY_S = 0.1
"""Maximum time in seconds that a group is read early in order to share a reading with another group."""


class NvmlUnavailable(Exception):  # noqa: N818 - describes the machine
    """Raised when NVML is unusable. `status` is a code for the reason, and `message` explains it to the user."""

    def __init__(self, status: NvmlStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class NvmlReader:
    """Reader of all GPUs on this host.

    `topology` describes the links between responding GPUs. `call_s` is the time in seconds that calls to NVML took in
    the last reading.

    Raises:
        NvmlUnavailable: NVML or its driver can't be used.
    """

    def __init__(self, *, basics: bool = False) -> None:
        """Initialize NVML and find the GPUs.

        If `basics` is True, only the identity of GPUs, basic quantities and process ids are read.
        """
        self._nvml = load_pynvml()
        self._basics = basics
        self._request: SnapshotRequest | None = None
        self._due = dict.fromkeys(READ_INTERVALS_S, 0.0)  # time of the next reading, by group of quantities
        self._stopwatch = Stopwatch()
        self._responding: tuple[int, ...] = ()  # indices of the GPUs in `topology`
        self.topology: Topology | None = None
        self.call_s = 0.0
        try:
            self._nvml.nvmlInit()
            self.driver_version = self._read_driver_version()
            self.cuda_version = self._read_cuda_version()
            self._xids = None if basics else Xids(self._nvml, self._stopwatch)
            self._devices = self._find_devices()
        except self._nvml.NVMLError as error:
            raise create_unavailable_error(self._nvml, error) from error

    @property
    def has_lost_gpu(self) -> bool:
        """True if any GPU is lost. Only a new process can find a lost GPU again."""
        return any(device.gpu.lost for device in self._devices)

    @property
    def has_sleeping_gpu(self) -> bool:
        """True if any GPU is asleep, even if NVML does not list it."""
        return any(device.gpu.asleep for device in self._devices)

    def read(self, request: SnapshotRequest) -> tuple[Gpu, ...]:
        """Read the requested quantities of all GPUs. The result has each GPU, followed by its MIG instances.

        Lost GPUs keep their last values.
        """
        self._stopwatch.spent_s = 0.0
        due = self._select_due(request)
        try:
            for device in self._devices:
                device.update_sleep(due)
            if self._xids is not None:
                self._xids.poll()
            if due.details:
                measure([device.traffic for device in self._devices if device.traffic is not None])
            for device in self._devices:
                device.read(due)
            if not self._basics:
                self._update_topology()
        except self._nvml.NVMLError as error:
            raise create_unavailable_error(self._nvml, error) from error
        self.call_s = self._stopwatch.spent_s
        return tuple(row for device in self._devices for row in device.readings)

    def _select_due(self, request: SnapshotRequest) -> ReadRequest:
        """Select the groups of quantities in `request` whose reading is due, and schedule their next reading.

        For a changed request, all groups are due.
        """
        now = time.monotonic()
        if request != self._request:
            self._request = request
            self._due = dict.fromkeys(READ_INTERVALS_S, now)
        due = {group: now + MAX_EARLY_S >= at for group, at in self._due.items()}
        self._due |= {group: now + READ_INTERVALS_S[group] for group, is_due in due.items() if is_due}
        return ReadRequest(
            processes=request.processes,
            activity=request.activity and not self._basics,
            details=request.details and not self._basics,
            basics=self._basics,
            processes_due=due["processes"],
            slow_due=due["slow"],
            links_due=due["links"],
        )

    def _update_topology(self) -> None:
        """Read `topology` again if another set of GPUs responds than the last time."""
        responding = [device for device in self._devices if device.is_responding]
        indices = tuple(device.gpu.nvml_index for device in responding)
        if indices == self._responding:
            return
        self._responding = indices
        nodes = [Node(device.gpu.nvml_index, device.handle, device.gpu.pci_bus_id) for device in responding]
        self.topology = self._stopwatch.time(lambda: read_topology(self._nvml, nodes))

    def _read_driver_version(self) -> str | None:
        """Return the version of the driver, e.g. "595.45", or None if it is unknown."""
        try:
            return decode_text(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return None

    def _read_cuda_version(self) -> str | None:
        """Return the CUDA version of the driver, e.g. "13.2", or None if it is unknown. NVML reports 13020."""
        try:
            version = int(self._nvml.nvmlSystemGetCudaDriverVersion_v2())
        except self._nvml.NVMLError:
            return None
        return f"{version // 1000}.{version % 1000 // 10}" if version > 0 else None

    def _find_devices(self) -> list[Device]:
        """Return the GPUs that can be used or are asleep, and those that are lost.

        Raises NVMLError if no GPU can be used and NVML has refused one.
        """
        host = None if self._basics else HostProcesses()
        shared = SharedReaders(self._nvml, self._stopwatch, host, self._xids)
        devices = []
        refused = None
        count = self._nvml.nvmlDeviceGetCount()
        sleeping = read_sleeping_gpus(count)
        for index in range(count):
            try:
                devices.append(Device(shared, index, sleeping.get(index)))
            except GpuLost:
                devices.append(Device(shared, index, create_lost_gpu(index, count)))
            except self._nvml.NVMLError as error:  # for example, this user has no permission for this GPU
                refused = error
        if refused is not None and all(device.gpu.lost for device in devices):
            raise refused
        return devices


def load_pynvml() -> ModuleType:
    """Import NVIDIA's module `pynvml`.

    Raises:
        NvmlUnavailable: The module is missing, or another package has overwritten it.
    """
    try:
        import pynvml
    except ImportError as error:
        raise NvmlUnavailable("wrong_module", sentences.NO_MODULE) from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer") or not hasattr(pynvml, "nvmlMemory_v2"):
        raise NvmlUnavailable("wrong_module", sentences.WRONG_MODULE)
    return pynvml


def create_unavailable_error(nvml: ModuleType, error: Exception) -> NvmlUnavailable:
    """Create the exception for an error of the entire NVML library, with a status and a text for the user."""
    code = getattr(error, "value", -1)  # an NVMLError has a value
    installation = {"driver_loaded": is_driver_loaded(), "in_container": is_in_container()}
    no_permission = sentences.explain_missing_permission(denied_files())
    states: dict[int, tuple[NvmlStatus, str]] = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: ("no_library", sentences.explain_missing_library(**installation)),
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: ("no_driver", sentences.explain_missing_driver(**installation)),
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ("version_mismatch", sentences.VERSION_MISMATCH),
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: ("version_mismatch", sentences.DRIVER_TOO_OLD),
        nvml.NVML_ERROR_NO_PERMISSION: ("no_permission", no_permission),
        nvml.NVML_ERROR_OPERATING_SYSTEM: ("no_permission", no_permission),
    }
    return NvmlUnavailable(*states.get(code, sentences.explain_failure(str(error))))
