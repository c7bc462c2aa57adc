"""State of devices, for monitors.

A quantity that a device can't measure is None or empty, never 0, and is omitted in JSON.

A device is identified by a string: an NVIDIA GPU by its UUID ("GPU-…", "MIG-…"), the CPU by "cpu". A device on another
machine has the name of the machine as a prefix: "node1:cpu" (see `hosts`). The indices of NVML and CUDA don't identify
a GPU, since their orders differ and change.

A `Snapshot` may come from a newer Footplate on another host, so unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from engine.system.plain_text import MAX_SHOWN_CHARS

NvmlStatus = Literal[
    "ok", "no_library", "no_driver", "version_mismatch", "no_permission", "wrong_module", "not_answering", "error"
]
CPU = "cpu"
Text = Annotated[str, msgspec.Meta(max_length=MAX_SHOWN_CHARS)]
Name = Annotated[Text, msgspec.Meta(pattern=r"\A[^\r\n\u2028\u2029]*\Z")]
"""Name of a host, device, user or process, on one line. A snapshot with an invalid name is rejected."""

ProcessKind = Literal["compute", "graphics", "both"]
Throttle = Literal[
    "idle", "clocks_setting", "power_cap", "hardware_slowdown", "sync_boost", "thermal", "hardware_thermal",
    "power_brake", "display_setting",
]  # fmt: skip
"""Reason for reduced clock frequencies, named after `NVML_CLOCKS_EVENT_REASON_*` in nvml.h."""
PciPath = Literal["BOARD", "PIX", "PXB", "PHB", "NODE", "SYS"]
"""PCIe path between two GPUs, as in `nvidia-smi topo -m` and `nvmlGpuTopologyLevel_t`.

"BOARD" is a path on one board, "PIX" through one PCIe switch, "PXB" through several switches, "PHB" through a host
bridge, "NODE" within a NUMA node, and "SYS" between NUMA nodes.
"""


class GpuProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """Process on a GPU, as reported by NVML.

    In a container, `pid` is the pid on the host, and the other facts are unknown.

    Attributes:
        sm_percent: Percentage of the GPU's multiprocessors used over the last sample period.
        cpu_percent: CPU usage in percent of one core.
        started: Start time in seconds since the epoch.
        ancestors: Pids of the parent, its parent, and so on.
    """

    pid: int
    memory_used_bytes: int | None = None
    user: Name | None = None
    name: Name | None = None
    kind: ProcessKind = "compute"
    command: Name = ""
    sm_percent: float | None = None
    cpu_percent: float | None = None
    host_memory_bytes: int | None = None
    started: float | None = None
    ancestors: tuple[int, ...] = ()


class Pcie(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """PCIe link from a GPU to the host.

    "Received" means received by the GPU. An idle link may report a lower generation.
    """

    generation: int | None = None
    max_generation: int | None = None
    width: int | None = None
    max_width: int | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    replays: int | None = None


class NvLink(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """NVLink of a GPU. `peer` is the PCI bus id of the other end."""

    link: int
    active: bool = False
    version: int | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    peer: Name = ""


class Ecc(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Numbers of corrected and uncorrected memory errors since the driver was loaded.

    The fields `total_…` count over the lifetime of the GPU.
    """

    enabled: bool | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    total_corrected: int | None = None
    total_uncorrected: int | None = None


class RetiredMemory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Retired memory by kind of error: pages in GPUs older than Ampere, remapped rows in newer ones."""

    pages_single_bit: int | None = None
    pages_double_bit: int | None = None
    pages_pending: bool | None = None
    rows_corrected: int | None = None
    rows_uncorrected: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None


class Mig(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Identity of a MIG instance within its GPU.

    `parent_uuid` is the UUID of the GPU. `gpu_instance` and `compute_instance` are NVML's ids. `profile` is the name
    used by nvidia-smi, such as "1g.10gb".
    """

    parent_uuid: Name
    gpu_instance: int
    compute_instance: int | None = None
    profile: Name = ""


class Xid(msgspec.Struct, frozen=True):
    """GPU error reported by the driver, by NVIDIA's number. `time` is in seconds since the epoch."""

    time: float
    number: int


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """State of an NVIDIA GPU or a MIG instance.

    Attributes:
        cuda_index: Index in CUDA's default order, or None if CUDA doesn't list it.
        compute_capability: (9, 0) for Hopper. For a MIG instance, it is that of the GPU.
        utilization_percent: Percentage of the last sample period in which any kernel ran.
        memory_busy_percent: Percentage of the last sample period in which memory was read or written.
        sm_active_percent: Percentage of active multiprocessors (GPM, Hopper and later), only while requested.
        tensor_active_percent: Percentage of active tensor pipes (GPM), only while requested.
        memory_used_bytes: Used memory, not including `memory_reserved_bytes`.
        memory_reserved_bytes: Memory that the driver reserves for itself.
        power_w: Power, averaged over about a second on most chips.
        energy_j: Energy since the driver was loaded.
        xids: Errors since the sampler was started, at most the last 16, in order.
        asleep: True if the GPU is suspended. It isn't woken for measurements.
        lost: True if the GPU has disappeared. The other fields keep their last known values.
    """

    uuid: Name
    name: Name
    nvml_index: int
    cuda_index: int | None = None
    pci_bus_id: Name | None = None
    compute_capability: tuple[int, int] | None = None
    utilization_percent: float | None = None
    memory_busy_percent: float | None = None
    sm_active_percent: float | None = None
    tensor_active_percent: float | None = None
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_free_bytes: int | None = None
    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    slowdown_c: float | None = None
    shutdown_c: float | None = None
    memory_max_c: float | None = None
    fan_percent: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    throttled: tuple[Throttle, ...] | None = None
    performance_state: int | None = None
    pcie: Pcie = Pcie()
    nvlinks: tuple[NvLink, ...] = ()
    ecc: Ecc = Ecc()
    retired: RetiredMemory = RetiredMemory()
    compute_mode: Literal["default", "exclusive_thread", "prohibited", "exclusive_process", ""] = ""
    persistence: bool | None = None
    mig_enabled: bool | None = None
    mig: Mig | None = None
    xids: tuple[Xid, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    asleep: bool = False
    lost: bool = False
    lost_since: float | None = None


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """Processor and memory of the host. Loads are in percent of one core."""

    name: Name
    core_load_percent: tuple[float, ...]
    load_percent: float
    memory_used_bytes: int
    memory_total_bytes: int
    temperature_c: float | None = None


class GpuPair(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Connection between two GPUs, each given by its `nvml_index`.

    It consists of `nvlinks` NVLinks. If there are none, it is a PCIe connection along `path`. `peer_access` is True if
    each GPU can read the other's memory directly.
    """

    one: int
    other: int
    path: PciPath | None = None
    nvlinks: int = 0
    peer_access: bool | None = None


class GpuAffinity(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """CPU affinity of a GPU: the nearby cores, as in "0-31,64-95", and the NUMA node."""

    index: int
    cores: str = ""
    numa_node: int | None = None


class Topology(msgspec.Struct, frozen=True):
    """All pairs of GPUs, each with the lower `nvml_index` first, and the CPU affinity of every GPU."""

    pairs: tuple[GpuPair, ...]
    affinities: tuple[GpuAffinity, ...]


class Nvml(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of NVML. If it doesn't work, `message` explains the reason and the remedy.

    Attributes:
        cuda_version: Newest CUDA version that the driver supports, as in "13.2".
        denied_files: Device files of the driver that this user may not open.
    """

    status: NvmlStatus
    message: Text = ""
    driver_version: Name | None = None
    cuda_version: Name | None = None
    denied_files: tuple[Name, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """State of all devices at `time` (seconds since the epoch). It is one line in the sampler's output.

    Attributes:
        foreign_pids: True in a container, where NVML reports the pids of the host.
        nvml_call_s: Duration of the NVML calls for this snapshot.
    """

    time: float
    host: Name
    nvml: Nvml
    gpus: tuple[Gpu, ...] = ()
    cpu: Cpu
    topology: Topology | None = None
    foreign_pids: bool = False
    nvml_call_s: float | None = None


class SnapshotRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Expensive readings that are currently needed. It is one line on the sampler's standard input.

    Attributes:
        processes: True to read the processes on the GPUs.
        activity: True to read the activity of SMs and tensor cores with GPM.
        details: True to read PCIe and NVLink throughput, clocks and all counters.
    """

    processes: bool = True
    activity: bool = True
    details: bool = True


class DeviceSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Measurements from one device that a run records."""

    device: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None


def is_gpu(device: str) -> bool:
    """Return True if a device is a GPU, or False for the CPU."""
    return local_device(device) != CPU


def host_of(device: str) -> str:
    """Return the name of the machine that `device` belongs to, or "" for this machine.

    The name of a machine may contain colons, but the local name of a device doesn't.
    """
    return device.rpartition(":")[0]


def local_device(device: str) -> str:
    """Return the name of `device` on its own machine."""
    return device.rpartition(":")[2]


def device_key(host: str, device: str) -> str:
    """Return the global name of a `device` on the machine `host`, or its local name if `host` is "" (this machine)."""
    return f"{host}:{device}" if host else device


def group_by_host(devices: Iterable[str]) -> dict[str, list[str]]:
    """Return the local names of the devices on each machine. Machines are in order of appearance."""
    devices_by_host: dict[str, list[str]] = {}
    for device in devices:
        devices_by_host.setdefault(host_of(device), []).append(local_device(device))
    return devices_by_host


def has_remote_devices(devices: Iterable[str]) -> bool:
    """Return True if any device belongs to another machine."""
    return any(map(host_of, devices))


def gpu_title(gpu: Gpu) -> str:
    """Return the name of a GPU for users: "GPU 0", "GPU 0 MIG 7" for a MIG instance, and "GPU 0 (MIG)" for its parent.

    The number is CUDA's if CUDA lists the GPU, otherwise NVML's. CUDA doesn't list the parents of MIG instances and may
    give their numbers to other GPUs, so they are marked by "(MIG)".
    """
    if gpu.mig is not None:
        compute_suffix = f".{gpu.mig.compute_instance}" if gpu.mig.compute_instance else ""  # not for the first one, 0
        return f"GPU {gpu.nvml_index} MIG {gpu.mig.gpu_instance}{compute_suffix}"
    if gpu.cuda_index is not None:
        return f"GPU {gpu.cuda_index}"
    return f"GPU {gpu.nvml_index} (MIG)" if gpu.mig_enabled else f"GPU {gpu.nvml_index}"


class NvmlReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Data read from NVML at one moment, with the duration of the calls in seconds.

    `gpus` is meaningful only if `nvml.status` is "ok". `topology` is set only if it has changed.
    """

    nvml: Nvml
    gpus: tuple[Gpu, ...] = ()
    topology: Topology | None = None
    call_s: float | None = None
