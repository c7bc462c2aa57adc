"""Peak memory of a worker, and its limit."""

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
"""Files in cgroup versions 2 and 1 with the limit and the usage, and the field with the reclaimable usage."""
_ROOT = Path("/sys/fs/cgroup")


class MainMemory:
    """Main memory available to this process, one of `workers` processes, minus the fraction `reserve`.

    Create it before allocating anything large. On Linux, larger allocations then fail, so that a trial that needs too
    much memory stops before the kernel chooses a process to kill.
    """

    def __init__(self, workers: int, reserve: float = 0.0) -> None:
        free = min((psutil.virtual_memory().available, *_free_in_cgroups())) // workers
        if sys.platform == "linux":
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            data = _process_bytes("VmData")
            if hard >= 0:
                free = min(free, max(0, hard - data))
            free = round((1 - reserve) * free)
            resource.setrlimit(resource.RLIMIT_DATA, (data + free, hard))
        self._limit = psutil.Process().memory_info().rss + free

    def peak(self) -> dict[str, tuple[int, int]]:
        """Return the peak use and the limit in bytes for memory, and for the address space if that is limited."""
        if sys.platform != "linux":
            info = psutil.Process().memory_info()
            return {"memory": (getattr(info, "peak_wset", info.rss), self._limit)}
        import resource

        peaks = {"memory": (_process_bytes("VmHWM"), self._limit)}
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            peaks["address space"] = (_process_bytes("VmPeak"), soft)
        return peaks


def gpu_peaks(devices: list[torch.device]) -> dict[str, tuple[int, int]]:
    """Return the peak memory that PyTorch reserved on each GPU, and its limit without other processes and CUDA."""
    peaks = {}
    for device in devices:
        free, _ = torch.cuda.mem_get_info(device)
        limit = free + torch.cuda.memory_reserved(device)
        peaks[f"GPU {device.index}"] = (torch.cuda.max_memory_reserved(device), limit)
    return peaks


def _process_bytes(field: str) -> int:
    """Return a field of this process's status in bytes (proc(5))."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:")) * 1024


def _free_in_cgroups() -> Iterator[int]:
    """Yield the free memory within the limits of each cgroup version."""
    for limit, used, cached in _CGROUPS:
        try:
            maximum, current = (_ROOT / limit).read_text().strip(), int((_ROOT / used).read_text())
            stat = dict(line.split() for line in (_ROOT / limit).with_name("memory.stat").read_text().splitlines())
        except OSError:
            continue
        if maximum != "max":
            yield int(maximum) - current + int(stat.get(cached, 0))
