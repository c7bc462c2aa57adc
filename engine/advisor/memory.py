"""How much memory a worker has used at most, and how much there is for it."""

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
"""For cgroup versions 2 and 1: the limit, the use, and the part of it that is reclaimable page cache."""
_ROOT = Path("/sys/fs/cgroup")


class MainMemory:
    """This process's share of main memory, one of `workers`, less the share `kept_free` of it; made before anything
    large is there.

    On Linux what goes beyond it is refused, so that a trial that takes too much ends by itself, before the kernel
    chooses a process to end.
    """

    def __init__(self, workers: int, kept_free: float = 0.0) -> None:
        free = min((psutil.virtual_memory().available, *_free_in_cgroups())) // workers
        if sys.platform == "linux":
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            data = _of_process("VmData")
            if hard >= 0:
                free = min(free, max(0, hard - data))
            free = round((1 - kept_free) * free)
            resource.setrlimit(resource.RLIMIT_DATA, (data + free, hard))
        self._limit = psutil.Process().memory_info().rss + free

    def peak(self) -> dict[str, tuple[int, int]]:
        """What was used at most and what there is, in bytes: of memory, and of address space where that is limited."""
        if sys.platform != "linux":
            info = psutil.Process().memory_info()
            return {"memory": (getattr(info, "peak_wset", info.rss), self._limit)}
        import resource

        found = {"memory": (_of_process("VmHWM"), self._limit)}
        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft != resource.RLIM_INFINITY:
            found["address space"] = (_of_process("VmPeak"), soft)
        return found


def gpu_peaks(devices: list[torch.device]) -> dict[str, tuple[int, int]]:
    """The same of GPUs: what PyTorch has reserved of each at most, and what it could, less what others and CUDA itself
    use.
    """
    found = {}
    for device in devices:
        free, _ = torch.cuda.mem_get_info(device)
        limit = free + torch.cuda.memory_reserved(device)
        found[f"GPU {device.index}"] = (torch.cuda.max_memory_reserved(device), limit)
    return found


def _of_process(field: str) -> int:
    """A field of this process's status in bytes (proc(5))."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{field}:")) * 1024


def _free_in_cgroups() -> Iterator[int]:
    """What the limits of containers leave."""
    for limit, used, cached in _CGROUPS:
        try:
            most, now = (_ROOT / limit).read_text().strip(), int((_ROOT / used).read_text())
            stat = dict(line.split() for line in (_ROOT / limit).with_name("memory.stat").read_text().splitlines())
        except OSError:
            continue
        if most != "max":
            yield int(most) - now + int(stat.get(cached, 0))
