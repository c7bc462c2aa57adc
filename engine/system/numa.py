"""CPUs that are near each GPU, on machines with several NUMA nodes.

A process on another node than its GPU accesses its pinned memory through the link between the processors, which is
slower. sysfs has the node of each PCI device (Documentation/ABI/testing/sysfs-bus-pci).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path

SYSFS = Path("/sys")
MIN_CPU_FRACTION = 0.9
"""Minimum number of CPUs for binding a rank, as a fraction of an equal share of all CPUs."""


def find_near_cpus(bus_id: str, sysfs: Path = SYSFS) -> frozenset[int]:
    """Return the CPUs of the NUMA node that a PCI device is on, or an empty set if it is unknown.

    `bus_id` is the device's PCI bus id, such as "0000:3b:00.0".
    """
    folder = sysfs / "bus/pci/devices" / bus_id.lower()
    try:
        if int((folder / "numa_node").read_text()) < 0:
            return frozenset()
        return parse_cpus((folder / "local_cpulist").read_text())
    except (OSError, ValueError):
        return frozenset()


def parse_cpus(text: str) -> frozenset[int]:
    """Parse a list of CPUs in the kernel's format: "0-15,32-47". Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def choose_cpus(rank: int, bus_ids: Sequence[str], allowed: Set[int], sysfs: Path = SYSFS) -> frozenset[int]:
    """Return the CPUs that a rank on this machine should be bound to, or an empty set if it should not be bound.

    They are the `allowed` CPUs of the NUMA node of the rank's GPU. All ranks whose GPUs are on this node share these
    CPUs. A rank is not bound if it would then have clearly fewer CPUs than an equal share of all allowed CPUs, since
    more CPUs may speed up reading images more than near memory does.

    Args:
        rank: Index of the rank among those on this machine.
        bus_ids: PCI bus ids of the GPUs of all ranks on this machine.
        allowed: CPUs that this process may use.
        sysfs: Folder of sysfs.
    """
    near = [find_near_cpus(bus_id, sysfs) & allowed for bus_id in bus_ids]
    cpus = near[rank]
    if not cpus or cpus == allowed:
        return frozenset()
    has_enough = len(cpus) / near.count(cpus) >= MIN_CPU_FRACTION * len(allowed) / len(bus_ids)
    return cpus if has_enough else frozenset()
