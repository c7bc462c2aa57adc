"""Devices as a monitor sees them. A quantity that a device cannot tell is None, never 0.

Devices are known by a string: an NVIDIA GPU by its UUID ("GPU-…", "MIG-…"), the CPU as "cpu".
Neither NVML's nor CUDA's index identifies a GPU, since their orders differ and change.
"""

from __future__ import annotations

from typing import Literal

import msgspec

NvmlStatus = Literal[
    "ok", "no_library", "no_driver", "version_mismatch", "no_permission", "wrong_module", "not_answering", "error"
]
CPU = "cpu"


class GpuProcess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that holds a GPU, as NVML names it. In a container `pid` is the host's."""

    pid: int
    memory_used_bytes: int | None = None
    user: str | None = None
    name: str | None = None


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One NVIDIA GPU at one moment.

    `utilization_percent` is the share of the last sample period in which any kernel ran.
    `cuda_index` is what CUDA calls this GPU in its default order, None where CUDA cannot say.
    A lost GPU keeps its row: `lost` is true and the last known values stay.
    """

    uuid: str
    name: str
    nvml_index: int
    cuda_index: int | None = None
    pci_bus_id: str | None = None
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    lost: bool = False
    lost_since: float | None = None


class Cpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The host's processor and memory at one moment; loads in percent of one core."""

    name: str
    core_load_percent: tuple[float, ...]
    load_percent: float
    memory_used_bytes: int
    memory_total_bytes: int
    temperature_c: float | None = None


class Nvml(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether NVML answers and, where it does not, one sentence that says why and what to do."""

    status: NvmlStatus
    message: str = ""
    driver_version: str | None = None


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All devices at `time` (seconds since the epoch). One line of the sampler's output."""

    time: float
    host: str
    nvml: Nvml
    gpus: tuple[Gpu, ...]
    cpu: Cpu


class DeviceSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a run records of one of its own devices."""

    device: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None


def is_gpu(device: str) -> bool:
    """Whether `device` names a GPU rather than the CPU."""
    return device != CPU
