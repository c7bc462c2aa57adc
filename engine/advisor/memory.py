"""Peak memory that a worker has used, and the limit of this memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

_CGROUPS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
)
"""Files with the limit and the usage of memory in cgroup versions 2 and 1.

The third entry is the field of `memory.stat` that counts reclaimable memory.
"""
_ROOT = Path("/sys/fs/cgroup")


class MainMemoryLimit:
    """Limit on the main memory of this process, which is set when the object is created.

    The limit is an equal part of the free memory for each of `workers` processes. Create it before allocating anything
    large. On Linux, the limit is lower by the fraction `reserve`, and allocations beyond it fail, so that a trial that
    needs too much memory stops before the kernel kills a process.
    """

    def __init__(self, workers: int, reserve: float = 0.0) -> None:
        """Determine the free memory, and on Linux make this process's allocations beyond the limit fail."""
        free = min((psutil.virtual_memory().available, *_read_free_in_cgroups())) // workers
        if sys.platform == "linux":
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            data = _read_process_bytes("VmData")  # memory that counts toward the limit
            if hard >= 0:  # a negative limit means none
                free = min(free, max(0, hard - data))
            free = round((1 - reserve) * free)
            resource.setrlimit(resource.RLIMIT_DATA, (data + free, hard))
        self._limit = psutil.Process().memory_info().rss + free

    def read_peak(self) -> dict[str, tuple[int, int]]:
        """Return the peak use and the limit of each memory in bytes.

        The memories are "memory" (main memory) and, if it is limited, "address space".
        """
        if sys.platform != "linux":
            info = psutil.Process().memory_info()
            return {"memory": (getattr(info, "peak_wset", info.rss), self._limit)}
        import resource

        peaks = {"memory": (_read_process_bytes("VmHWM"), self._limit)}
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            peaks["address space"] = (_read_process_bytes("VmPeak"), soft)
        return peaks


def read_gpu_peaks(devices: list[torch.device]) -> dict[str, tuple[int, int]]:
    """Return the peak memory that PyTorch reserved on each GPU, and its limit, in bytes, keyed by "GPU 0" etc.

    The limit does not include the memory of other processes and of CUDA itself.
    """
    peaks = {}
    for device in devices:
        free, _ = torch.cuda.mem_get_info(device)
        limit = free + torch.cuda.memory_reserved(device)
        peaks[f"GPU {device.index}"] = (torch.cuda.max_memory_reserved(device), limit)
    return peaks


def _read_process_bytes(field: str) -> int:
    """Return the value of a memory field, such as "VmHWM", in /proc/self/status, in bytes."""
    status = Path("/proc/self/status").read_text()
    value_kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:"))
    return value_kib * 1024


def _read_free_in_cgroups() -> Iterator[int]:
    """Yield the memory, in bytes, that is free under the limit of the container's cgroup, for each cgroup version.

    Versions that are not mounted or set no limit are left out.
    """
    for limit_file, usage_file, reclaimable_field in _CGROUPS:
        try:
            limit, used = (_ROOT / limit_file).read_text().strip(), int((_ROOT / usage_file).read_text())
            statistics = (_ROOT / limit_file).with_name("memory.stat").read_text()
        except OSError:
            continue
        if limit != "max":
            reclaimable = dict(line.split() for line in statistics.splitlines()).get(reclaimable_field, 0)
            yield int(limit) - used + int(reclaimable)
