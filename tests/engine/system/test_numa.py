"""CPUs that are close to a GPU, according to a simulated sysfs tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.system.numa import choose_cpus, find_near_cpus, parse_cpus

FIRST, SECOND = "0000:3b:00.0", "0000:AF:00.0"
NODES = ("0-7,16-23", "8-15,24-31")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Return a sysfs tree with 32 CPUs on two NUMA nodes, four GPUs on each node, and a GPU that belongs to no node."""
    for node, bus in (
        (0, "3b"),
        (0, "3c"),
        (0, "3d"),
        (0, "3e"),
        (1, "af"),
        (1, "b0"),
        (1, "b1"),
        (1, "b2"),
        (-1, "c0"),
    ):
        folder = tmp_path / "bus/pci/devices" / f"0000:{bus}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
        (folder / "local_cpulist").write_text(f"{NODES[node] if node >= 0 else '0-31'}\n")
    return tmp_path


def test_cpus_are_parsed_as_the_kernel_lists_them() -> None:
    assert parse_cpus("0-2,8,10-11\n") == {0, 1, 2, 8, 10, 11}
    assert parse_cpus("\n") == frozenset()


def test_near_cpus_are_those_of_the_gpus_node(sysfs: Path) -> None:
    assert find_near_cpus(FIRST, sysfs) == parse_cpus(NODES[0])
    assert find_near_cpus(SECOND, sysfs) == parse_cpus(NODES[1])
    assert find_near_cpus("0000:c0:00.0", sysfs) == frozenset(), "it belongs to no node"
    assert find_near_cpus("00ff:01:00.0", sysfs) == frozenset(), "sysfs does not know it"


EVERY = frozenset(range(32))


@pytest.mark.parametrize(
    ("bus_ids", "allowed", "expected"),
    [
        ((FIRST, SECOND), EVERY, NODES),
        (("0000:3b:00.0", "0000:3c:00.0", "0000:af:00.0", "0000:b0:00.0"), EVERY, (NODES[0], NODES[0], *NODES[1:] * 2)),
        # Never outside of the cpuset.
        ((FIRST, SECOND), frozenset(range(4, 12)), ("4-7", "8-11")),
        ((FIRST, SECOND), frozenset(range(8)), ("", "")),
        # One GPU, or two on one node, would lose half of the machine.
        ((FIRST,), EVERY, ("",)),
        (("0000:3b:00.0", "0000:3c:00.0"), EVERY, ("", "")),
        (("0000:3b:00.0", "0000:c0:00.0"), EVERY, (NODES[0], "")),
    ],
    ids=str,
)
def test_ranks_are_bound_unless_they_lose_cpus(
    sysfs: Path, bus_ids: tuple[str, ...], allowed: frozenset[int], expected: tuple[str, ...]
) -> None:
    found = [choose_cpus(rank, bus_ids, allowed, sysfs) for rank in range(len(bus_ids))]
    assert found == [parse_cpus(each) for each in expected]
    assert all(cpus <= allowed for cpus in found)
