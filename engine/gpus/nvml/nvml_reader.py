"""NVIDIA's management library through NVIDIA's own module `pynvml`: all GPUs of this host.

To be used in a process of its own: any call here may hang, or end the process natively.
Source: NVML API reference and nvml.h.
"""

from __future__ import annotations

import time
from types import ModuleType

from engine.contract.devices import Gpu, NvmlStatus, SnapshotRequest, Topology
from engine.gpus import installation, sentences
from engine.gpus.host import HostProcesses
from engine.gpus.nvml.calls import GpuLost, Stopwatch, text
from engine.gpus.nvml.device import Device, Tools
from engine.gpus.nvml.queries import Wanted
from engine.gpus.nvml.sleep import lost, sleepers
from engine.gpus.nvml.topology import Node, read_topology
from engine.gpus.nvml.traffic import measure
from engine.gpus.nvml.xids import Xids

LANES_S = {"processes": 2.0, "slow": 5.0, "links": 60.0}
"""Lists of processes take milliseconds of the driver's lock, fans and counters of errors hundreds of microseconds."""
SLACK_S = 0.1
"""A lane that is due this soon is asked in this reading rather than the next."""


class NvmlUnavailable(Exception):  # noqa: N818  a state of the machine rather than a fault of ours
    """NVML cannot be used now; `status` and `message` are what the user is told."""

    def __init__(self, status: NvmlStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class NvmlReader:
    """All GPUs of this host, or with `basics` no more than who there is, their use and their processes' pids.

    `topology` is how those that answer reach each other. `call_s` is what NVML's own calls took in the last reading.
    Raises `NvmlUnavailable` when NVML, or the driver below it, cannot be used.
    """

    def __init__(self, *, basics: bool = False) -> None:
        self._nvml = load_pynvml()
        self._basics = basics
        self._shown: SnapshotRequest | None = None
        self._due = dict.fromkeys(LANES_S, 0.0)
        self._stopwatch = Stopwatch()
        self._answering: tuple[int, ...] = ()
        self.topology: Topology | None = None
        self.call_s = 0.0
        try:
            self._nvml.nvmlInit()
            self.driver_version = self._driver_version()
            self.cuda_version = self._cuda_version()
            self._xids = None if basics else Xids(self._nvml, self._stopwatch)
            self._devices = self._find_devices()
        except self._nvml.NVMLError as error:
            raise unavailable(self._nvml, error) from error

    @property
    def any_lost(self) -> bool:
        """Whether some GPU was lost, now or from the beginning; only a new process can find it again."""
        return any(device.gpu.lost for device in self._devices)

    @property
    def any_asleep(self) -> bool:
        """Whether some GPU is asleep, be it listed or not."""
        return any(device.gpu.asleep for device in self._devices)

    def read(self, shown: SnapshotRequest) -> tuple[Gpu, ...]:
        """Every GPU now, each followed by its MIG instances, lost ones with their last values."""
        self._stopwatch.spent_s = 0.0
        wanted = self._wanted(shown)
        try:
            for device in self._devices:
                device.look(wanted)
            if self._xids is not None:
                self._xids.poll()
            if wanted.details:
                measure([device.traffic for device in self._devices if device.traffic is not None])
            for device in self._devices:
                device.read(wanted)
            if not self._basics:
                self._renew_topology()
        except self._nvml.NVMLError as error:
            raise unavailable(self._nvml, error) from error
        self.call_s = self._stopwatch.spent_s
        return tuple(row for device in self._devices for row in device.rows)

    def _wanted(self, shown: SnapshotRequest) -> Wanted:
        """What of `shown` is due. What has just come into sight is asked for at once."""
        now = time.monotonic()
        if shown != self._shown:
            self._shown = shown
            self._due = dict.fromkeys(LANES_S, now)
        due = {lane: now + SLACK_S >= at for lane, at in self._due.items()}
        self._due |= {lane: now + LANES_S[lane] for lane, is_due in due.items() if is_due}
        return Wanted(
            processes=shown.processes,
            activity=shown.activity and not self._basics,
            details=shown.details and not self._basics,
            basics=self._basics,
            processes_due=due["processes"],
            slow_due=due["slow"],
            links_due=due["links"],
        )

    def _renew_topology(self) -> None:
        answering = [device for device in self._devices if device.answering]
        indices = tuple(device.gpu.nvml_index for device in answering)
        if indices == self._answering:
            return
        self._answering = indices
        nodes = [Node(device.gpu.nvml_index, device.handle, device.gpu.pci_bus_id) for device in answering]
        self.topology = self._stopwatch.time(lambda: read_topology(self._nvml, nodes))

    def _driver_version(self) -> str | None:
        try:
            return text(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return None

    def _cuda_version(self) -> str | None:
        """NVML's 13020 as "13.2"."""
        try:
            version = int(self._nvml.nvmlSystemGetCudaDriverVersion_v2())
        except self._nvml.NVMLError:
            return None
        return f"{version // 1000}.{version % 1000 // 10}" if version > 0 else None

    def _find_devices(self) -> list[Device]:
        """Return the GPUs that may be used, and those that are lost already, which can't even tell their UUIDs."""
        host = None if self._basics else HostProcesses()
        tools = Tools(self._nvml, self._stopwatch, host, self._xids)
        devices = []
        refused = None
        count = self._nvml.nvmlDeviceGetCount()
        sleeping = sleepers(count)
        for index in range(count):
            try:
                devices.append(Device(tools, index, sleeping.get(index)))
            except GpuLost:
                devices.append(Device(tools, index, lost(index, count)))
            except self._nvml.NVMLError as error:
                refused = error
        if refused is not None and all(device.gpu.lost for device in devices):
            raise refused
        return devices


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
    where = {"driver_loaded": installation.driver_loaded(), "in_container": installation.in_container()}
    no_permission = sentences.no_permission(installation.denied_files())
    states: dict[int, tuple[NvmlStatus, str]] = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: ("no_library", sentences.no_library(**where)),
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: ("no_driver", sentences.no_driver(**where)),
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ("version_mismatch", sentences.VERSION_MISMATCH),
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: ("version_mismatch", sentences.DRIVER_TOO_OLD),
        nvml.NVML_ERROR_NO_PERMISSION: ("no_permission", no_permission),
        nvml.NVML_ERROR_OPERATING_SYSTEM: ("no_permission", no_permission),
    }
    return NvmlUnavailable(*states.get(code, sentences.failed(str(error))))
