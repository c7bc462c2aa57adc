"""Devices as a monitor sees them. A quantity that a device cannot tell is None or empty, never 0, and left out of JSON.

Devices are known by a string: an NVIDIA GPU by its UUID ("GPU-…", "MIG-…"), the CPU as "cpu"; those of another
machine have its name before them: "node1:cpu" (see `hosts`). Neither NVML's nor CUDA's index identifies a GPU, since
their orders differ and change.

What a `Snapshot` is made of may be written by a newer Footplate on another host: fields that are not known are passed
over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from engine.system.plain_text import MOST_SHOWN

NvmlStatus = Literal[
    "ok", "no_library", "no_driver", "version_mismatch", "no_permission", "wrong_module", "not_answering", "error"
]
CPU = "cpu"
Text = Annotated[str, msgspec.Meta(max_length=MOST_SHOWN)]
Name = Annotated[Text, msgspec.Meta(pattern=r"\A[^\r\n\u2028\u2029]*\Z")]
"""What a host, a device, a user or a process is called, on one line. A snapshot with another name is refused."""

ProcessKind = Literal["compute", "graphics", "both"]
Throttle = Literal[
    "idle", "clocks_setting", "power_cap", "hardware_slowdown", "sync_boost", "thermal", "hardware_thermal",
    "power_brake", "display_setting",
]  # fmt: skip
"""Why clocks are not higher: `NVML_CLOCKS_EVENT_REASON_*` of nvml.h."""
PciPath = Literal["BOARD", "PIX", "PXB", "PHB", "NODE", "SYS"]
"""What two GPUs talk through: one board, one PCIe switch, several switches, a host bridge, a NUMA node, between nodes
(`nvidia-smi topo -m`; `nvmlGpuTopologyLevel_t`)."""


class GpuProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that holds a GPU, as NVML names it. In a container `pid` is the host's, and no more is known of it.

    `sm_percent` is its share of the GPU's multiprocessors over the last sample period; `cpu_percent` is of one core.
    `ancestors` are the pids of its parent, the parent's parent, and so on. `started` is in seconds since the epoch.
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
    """A GPU's link to the host. Received is what the GPU takes in. A resting link may be told with a lower
    generation.
    """

    generation: int | None = None
    max_generation: int | None = None
    width: int | None = None
    max_width: int | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    replays: int | None = None


class NvLink(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One of a GPU's NVLinks. `peer` is the PCI bus id of what it leads to."""

    link: int
    active: bool = False
    version: int | None = None
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    peer: Name = ""


class Ecc(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Memory errors: `corrected` and `uncorrected` since the driver was loaded, `total_…` over the GPU's life."""

    enabled: bool | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    total_corrected: int | None = None
    total_uncorrected: int | None = None


class Retired(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Memory taken out of use: pages (before Ampere) and rows remapped (since), by kind of error."""

    pages_single_bit: int | None = None
    pages_double_bit: int | None = None
    pages_pending: bool | None = None
    rows_corrected: int | None = None
    rows_uncorrected: int | None = None
    rows_pending: bool | None = None
    rows_failed: bool | None = None


class Mig(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a MIG instance is part of. `profile` as nvidia-smi writes it: "1g.10gb"."""

    parent_uuid: Name
    gpu_instance: int
    compute_instance: int | None = None
    profile: Name = ""


class Xid(msgspec.Struct, frozen=True):
    """An error that the driver reported of a GPU, at `time` (seconds since the epoch); NVIDIA documents the numbers."""

    time: float
    number: int


class Gpu(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One NVIDIA GPU, or one MIG instance, at one moment.

    - `utilization_percent` is the share of the last sample period in which any kernel ran, `memory_busy_percent` in
      which memory was read or written; `sm_active_percent` and `tensor_active_percent` (GPM, Hopper and later) the share
      of multiprocessors and tensor pipes at work, told only while asked for.
    - `memory_used_bytes` does not count `memory_reserved_bytes`, which the driver keeps for itself.
    - `energy_j` counts from when the driver was loaded. `power_w` is an average over about a second on most chips.
    - `cuda_index` is what CUDA calls this GPU in its default order, None where CUDA cannot say.
    - `compute_capability` is (9, 0) for Hopper; of a MIG instance that of its GPU.
    - A lost GPU keeps its row: `lost` is true and the last known values stay. One that is `asleep` is not woken.
    - `xids` are those since the sampler was started, the latest last, at most 16.
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
    retired: Retired = Retired()
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
    """The host's processor and memory at one moment; loads in percent of one core."""

    name: Name
    core_load_percent: tuple[float, ...]
    load_percent: float
    memory_used_bytes: int
    memory_total_bytes: int
    temperature_c: float | None = None


class GpuPair(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How two GPUs, by `nvml_index`, reach each other: over `nvlinks` NVLinks, if any, else through PCIe as `path`
    says. `peer_access` is whether each can read the other's memory directly.
    """

    one: int
    other: int
    path: PciPath | None = None
    nvlinks: int = 0
    peer_access: bool | None = None


class GpuAffinity(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where in the host a GPU sits: the processor's cores close to it, as "0-31,64-95", and its NUMA node."""

    index: int
    cores: str = ""
    numa_node: int | None = None


class Topology(msgspec.Struct, frozen=True):
    """Every pair of GPUs once, the lower `nvml_index` first, and every GPU's affinity."""

    pairs: tuple[GpuPair, ...]
    affinities: tuple[GpuAffinity, ...]


class Nvml(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether NVML answers and, where it does not, one sentence that says why and what to do.

    `cuda_version` is the newest CUDA that the driver supports, as "13.2". `denied_files` are those of the driver's
    device files that this user may not open.
    """

    status: NvmlStatus
    message: Text = ""
    driver_version: Name | None = None
    cuda_version: Name | None = None
    denied_files: tuple[Name, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All devices at `time` (seconds since the epoch). One line of the sampler's output.

    `foreign_pids` is true in a container, where NVML names the host's processes. `nvml_call_s` is how long NVML's own
    calls took for this snapshot.
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
    """What is on screen of that which is dear to ask for: the processes; the activity of SMs and tensor cores by GPM;
    throughput of PCIe and NVLink, clocks and counters in full. A line on the sampler's standard input.
    """

    processes: bool = True
    activity: bool = True
    details: bool = True


class DeviceSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run records of one of its own devices."""

    device: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None


def is_gpu(device: str) -> bool:
    """Whether `device` names a GPU rather than a CPU."""
    return there(device) != CPU


def host_of(device: str) -> str:
    """The machine that `device` is on, "" for this one. A machine's name may hold colons, a device's own has none."""
    return device.rpartition(":")[0]


def there(device: str) -> str:
    """What the machine that `device` is on calls it itself."""
    return device.rpartition(":")[2]


def device_key(host: str, device: str) -> str:
    """What the rest of the program calls a device that `host`, "" for this machine, calls `device`."""
    return f"{host}:{device}" if host else device


def by_host(devices: Iterable[str]) -> dict[str, list[str]]:
    """The devices of each machine, as it calls them itself, the machines in their order."""
    found: dict[str, list[str]] = {}
    for device in devices:
        found.setdefault(host_of(device), []).append(there(device))
    return found


def elsewhere(devices: Iterable[str]) -> bool:
    """Whether a run on `devices` needs another machine."""
    return any(map(host_of, devices))


def gpu_title(gpu: Gpu) -> str:
    """ "GPU 0": CUDA's number where CUDA knows the GPU, else NVML's. An instance of a GPU is "GPU 0 MIG 7", and the GPU
    itself, which CUDA does not list then while it may give its number to another, "GPU 0 (MIG)".
    """
    number = gpu.nvml_index if gpu.cuda_index is None else gpu.cuda_index
    if gpu.mig is None:
        return f"GPU {number} (MIG)" if gpu.mig_enabled and gpu.cuda_index is None else f"GPU {number}"
    compute = f".{gpu.mig.compute_instance}" if gpu.mig.compute_instance else ""
    return f"GPU {gpu.nvml_index} MIG {gpu.mig.gpu_instance}{compute}"
