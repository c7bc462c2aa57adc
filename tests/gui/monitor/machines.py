"""Builders of snapshots that the views of the Monitor page show."""

from __future__ import annotations

from itertools import combinations

from engine.contract.devices import Gpu, GpuAffinity, GpuPair, GpuProcess, PciPath, Snapshot, Topology
from gui.sources.devices.device_format import current_user
from gui.sources.devices.hosts import Hosts
from tests.gui.sources.devices.snapshots import UUIDS, gpu

GIB = 1 << 30
NOW = 1_700_000_000.0


def make_gpu(n: int, **changes: object) -> Gpu:
    """Return a GPU whose index is `n` in CUDA and in NVML. `changes` override its other fields."""
    values = {"uuid": UUIDS[n % 8].replace("GPU-", f"GPU-{n // 8}"), "nvml_index": n, "cuda_index": n}
    return gpu(n % 8, **(values | changes))


def make_process(pid: int, **changes: object) -> GpuProcess:
    """Return a process of the current user that started an hour ago. `changes` override its fields."""
    values: dict[str, object] = {
        "memory_used_bytes": GIB,
        "user": current_user(),
        "name": "python3",
        "command": f"python3 train.py --number {pid}",
        "sm_percent": 40.0,
        "cpu_percent": 100.0,
        "host_memory_bytes": 2 * GIB,
        "started": NOW - 3600,
        "ancestors": (1,),
    }
    return GpuProcess(pid, **(values | changes))  # type: ignore[arg-type]


def deliver_snapshot(hosts: Hosts, snapshot: Snapshot, host: str = "") -> None:
    """Deliver a snapshot of `host` to the views."""
    hosts._samplers[host].snapshot.emit(snapshot)


def make_topology(
    count: int, *, nvlinks: dict[tuple[int, int], int] | int = 0, path: dict[tuple[int, int], PciPath] | PciPath = "SYS",
    peers: bool | None = None,
) -> Topology:  # fmt: skip
    """Return the topology of `count` GPUs.

    `nvlinks` is the number of NVLinks between two GPUs, and `path` the kind of their PCIe path: one value for all
    pairs, or a dict for some pairs. Other pairs have no NVLinks and the longest path. `peers` is True if GPUs can
    access each other's memory, or None if that is unknown.
    """
    pairs = []
    for one, other in combinations(range(count), 2):
        links = nvlinks if isinstance(nvlinks, int) else nvlinks.get((one, other), 0)
        kind = path if isinstance(path, str) else path.get((one, other), "SYS")
        pairs.append(GpuPair(one=one, other=other, path=kind, nvlinks=links, peer_access=peers))
    return Topology(
        tuple(pairs), tuple(GpuAffinity(index=n, cores=f"{8 * n}-{8 * n + 7}", numa_node=n // 4) for n in range(count))
    )


def pairs_within(*groups: range) -> list[tuple[int, int]]:
    """Return all pairs of GPUs that are in the same group."""
    return [pair for group in groups for pair in combinations(group, 2)]
