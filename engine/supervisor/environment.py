"""What a run was made with: versions and facts of the host, without importing what they are about."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from engine.contract.devices import CPU, Gpu, Snapshot
from engine.contract.events import RunDevice
from engine.gpus.cpu import cpu_name

PACKAGES = ("footplate", "torch", "torchvision")


def describe(snapshot: Snapshot | None) -> dict[str, str]:
    """Names to versions and facts; what is not known is left away. `snapshot` tells of the driver."""
    facts = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    facts |= {"host": platform.node(), "os": platform.platform(), "cpu": cpu_name(), "cores": str(usable_cores())}
    if snapshot is not None and snapshot.nvml.driver_version:
        facts["driver"] = snapshot.nvml.driver_version
    return facts


def usable_cores() -> int:
    """The cores that this process may run on, which may be fewer than the host has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _called(gpu: Gpu) -> str:
    """The GPU's name with its number, since a machine's GPUs are mostly of one kind."""
    return gpu.name if gpu.cuda_index is None else f"{gpu.name} (GPU {gpu.cuda_index})"


def run_devices(devices: tuple[str, ...], world_size: int, snapshot: Snapshot | None) -> tuple[RunDevice, ...]:
    """The devices of a run by name, each once, with the ranks that run on it."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus} if snapshot is not None else {}
    found = []
    for device in dict.fromkeys(devices):
        ranks_there: Iterable[int] = (rank for rank, other in enumerate(devices) if other == device)
        ranks = tuple(rank if world_size > 1 else 0 for rank in ranks_there)
        if device == CPU:
            memory = snapshot.cpu.memory_total_bytes if snapshot is not None else None
            name = cpu_name()
        else:
            gpu = gpus.get(device)
            memory = gpu.memory_total_bytes if gpu is not None else None
            name = _called(gpu) if gpu is not None else device
        found.append(RunDevice(id=device, name=name, ranks=ranks, memory_total_bytes=memory))
    return tuple(found)
