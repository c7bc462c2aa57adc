"""Facts about the host and versions of packages for a run's log. The packages are not imported."""

from __future__ import annotations

import contextlib
import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from engine.contract.devices import CPU, Gpu, Snapshot
from engine.contract.events import RunDevice
from engine.gpus.cpu import cpu_name
from engine.system.plugins import installed_versions

_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
PACKAGES = ("footplate", "torch", "torchvision")


def describe_environment(snapshot: Snapshot | None) -> dict[str, str]:
    """Return facts about the host and versions of software, by name. The driver's version is taken from `snapshot`."""
    facts = {"python": platform.python_version(), **installed_versions(PACKAGES)}
    facts |= {"host": platform.node(), "os": platform.platform(), "cpu": cpu_name(), "cores": str(usable_cores())}
    if snapshot is not None and snapshot.nvml.driver_version:
        facts["driver"] = snapshot.nvml.driver_version
    return facts


def usable_cores() -> int:
    """Return the number of cores that this process may use.

    It is limited by the process's CPU affinity and the quotas of its control groups.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *map(math.ceil, _read_quotas())]))


def _read_quotas() -> Iterator[float]:
    """Yield the CPU quotas of this process's control groups, in cores.

    Sources: "Control Group v2", cpu.max; cpu.cfs_* in version 1.
    """
    try:
        groups = [line.split(":", 2) for line in (_PROC / "self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, group in groups:
        if controllers and "cpu" not in controllers.split(","):
            continue
        is_version_1 = bool(controllers)
        root = _CGROUPS / "cpu" if is_version_1 else _CGROUPS
        path = Path(group.strip("/"))
        # Limits of parent groups apply, too. In a container, the path of a group may not exist under the mounted root.
        for folder in {root, root / path, *(root / parent for parent in path.parents)}:
            with contextlib.suppress(OSError, ValueError):  # without a limit, version 2 has the text "max"
                if is_version_1:
                    quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
                else:
                    quota, period = (folder / "cpu.max").read_text().split()
                if int(quota) > 0:  # without a limit, version 1 has -1
                    yield int(quota) / int(period)


def _format_gpu_title(gpu: Gpu) -> str:
    """Return the name and index of a GPU. The index is needed because most machines have several GPUs of one kind."""
    return gpu.name if gpu.cuda_index is None else f"{gpu.name} (GPU {gpu.cuda_index})"


def run_devices(devices: tuple[str, ...], world_size: int, snapshot: Snapshot | None) -> tuple[RunDevice, ...]:
    """Return a description of each of the run's devices, with its name and ranks. Names are taken from `snapshot`."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus} if snapshot is not None else {}
    result = []
    for device in dict.fromkeys(devices):
        # With one process for all devices, all of them have its rank, 0.
        ranks = tuple(rank if world_size > 1 else 0 for rank, other in enumerate(devices) if other == device)
        if device == CPU:
            memory = snapshot.cpu.memory_total_bytes if snapshot is not None else None
            name = cpu_name()
        else:
            gpu = gpus.get(device)
            memory = gpu.memory_total_bytes if gpu is not None else None
            name = _format_gpu_title(gpu) if gpu is not None else device
        result.append(RunDevice(id=device, name=name, ranks=ranks, memory_total_bytes=memory))
    return tuple(result)
