"""Topology and CPU affinity of GPUs, read from the NVML stub."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from engine.contract.devices import GpuAffinity, GpuPair, NvLink, Topology
from engine.gpus.nvml.topology import _normalize_bus_id, find_set_bits, format_ranges, read_nvlinks
from tests.engine.gpus.conftest import Start
from tests.support import nvml_stub as stubs
from tests.support.nvml_stub import NvmlStub, Profile, make_gpu_profile

GPU, SWITCH, UNKNOWN_DEVICE = 0, 2, 255
OK, CHIPSET_NOT_SUPPORTED, DISABLED, STATUS_UNKNOWN = 0, 1, 4, 6
BOARD, PIX, NODE, SYS = 0, 10, 40, 50
SWITCH_BUS_ID = "00000007:00:00.0"
NO_TOPOLOGY: dict[str, object] = {
    "ancestors": None, "peers": None, "nvlink_peers": None, "cores": None, "numa_node": None, "nvlinks": None,
    "nvlinks_active": None, "link": None,
}  # fmt: skip


def make_profiles(count: int, **changes: object) -> list[Profile]:
    """Return GPU profiles without topology for the NVML stub.

    `changes` override values. A value can be a function of the GPU's index.
    """
    return [
        make_gpu_profile(index, **(NO_TOPOLOGY | {key: v(index) if callable(v) else v for key, v in changes.items()}))
        for index in range(count)
    ]


def sample_topology(stub: NvmlStub, start_sampler: Start, gpus: list[Profile]) -> Topology | None:
    stub.write(gpus)
    return start_sampler("--once", stub=stub).next().topology


def bus_id(index: int) -> str:
    return str(make_gpu_profile(index)["bus_id"])


def test_topology_lists_each_pair_once_with_path(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    def levels(index: int) -> str:
        return ",".join(str((BOARD, PIX)[index // 2] if index // 2 == other // 2 else SYS) for other in range(4))

    topology = sample_topology(nvml_stub, start_sampler, make_profiles(4, ancestors=levels))
    assert topology is not None
    assert {(pair.one, pair.other): pair.path for pair in topology.pairs} == {
        (0, 1): "BOARD", (0, 2): "SYS", (0, 3): "SYS", (1, 2): "SYS", (1, 3): "SYS", (2, 3): "PIX",
    }  # fmt: skip
    assert all(pair.nvlinks == 0 and pair.peer_access is None for pair in topology.pairs)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (OK, OK, True),
        (OK, DISABLED, False),
        (CHIPSET_NOT_SUPPORTED, CHIPSET_NOT_SUPPORTED, False),
        (STATUS_UNKNOWN, OK, None),
    ],
)
def test_peer_access_requires_both_gpus(
    nvml_stub: NvmlStub, start_sampler: Start, one: int, other: int, expected: bool | None
) -> None:
    status = {0: f"-1,{one}", 1: f"{other},-1"}
    topology = sample_topology(nvml_stub, start_sampler, make_profiles(2, ancestors=f"{NODE},{NODE}", peers=status.get))
    assert topology is not None
    assert topology.pairs == (GpuPair(one=0, other=1, path="NODE", peer_access=expected),)


def test_nvlinks_counts_active_direct_links_only(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    def links(index: int) -> list[str]:
        neighbors = {0: [1, 1, 2, 1], 1: [0, 0, 0, 2], 2: [0, 1, 1, 1]}[index]
        return [f"{number}:{bus_id(other).lower()}:{GPU}" for number, other in enumerate(neighbors)]

    topology = sample_topology(nvml_stub, start_sampler, make_profiles(3, nvlinks=4, nvlinks_active=3, link=links))
    assert topology is not None
    assert {(pair.one, pair.other): pair.nvlinks for pair in topology.pairs} == {(0, 1): 2, (0, 2): 1, (1, 2): 0}


def test_nvlinks_over_a_switch_are_the_minimum_of_both(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    active = {0: 18, 1: 16}
    gpus = make_profiles(
        2, nvlinks=18, nvlinks_active=active.get, link=[f"{n}:{SWITCH_BUS_ID}:{SWITCH}" for n in range(18)],
        nvlink_peers="0,0",
    )  # fmt: skip
    topology = sample_topology(nvml_stub, start_sampler, gpus)
    assert topology is not None
    assert topology.pairs == (GpuPair(one=0, other=1, nvlinks=16),)


def test_nvlinks_are_zero_between_switch_partitions(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    links = [f"{n}:{SWITCH_BUS_ID}:{SWITCH}" for n in range(2)]
    gpus = make_profiles(2, ancestors=f"{SYS},{SYS}", nvlinks=2, nvlinks_active=2, link=links, nvlink_peers="5,5")
    topology = sample_topology(nvml_stub, start_sampler, gpus)
    assert topology is not None
    assert topology.pairs == (GpuPair(one=0, other=1, path="SYS"),)


def test_nvlinks_to_a_processor_connect_no_gpus(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    links = [f"{n}:00000004:00:01.0:1" for n in range(2)]
    gpus = make_profiles(2, ancestors=f"{SYS},{SYS}", nvlinks=2, nvlinks_active=2, link=links)
    topology = sample_topology(nvml_stub, start_sampler, gpus)
    assert topology is not None
    assert topology.pairs[0].nvlinks == 0


def test_nvlinks_after_an_unreadable_one_are_read() -> None:
    class UnreadableError(Exception):
        pass

    def state_of(_handle: object, link: int) -> int:
        if link not in states:
            raise UnreadableError
        return states[link]

    nvml = cast(ModuleType, SimpleNamespace(
        NVML_NVLINK_MAX_LINKS=6, NVML_FEATURE_ENABLED=1, NVMLError=UnreadableError, nvmlDeviceGetNvLinkState=state_of,
        nvmlDeviceGetNvLinkVersion=lambda _handle, link: 5 + link,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda _handle, link: SimpleNamespace(busId=f"00000000:0{link}:00.0"),
    ))  # fmt: skip
    states = {0: 0, 1: 1, 3: 1, 4: 0}
    assert read_nvlinks(nvml, None) == (
        NvLink(link=0),
        NvLink(link=1, active=True, version=4, peer=_normalize_bus_id("00000000:01:00.0")),
        NvLink(link=3, active=True, version=6, peer=_normalize_bus_id("00000000:03:00.0")),
        NvLink(link=4),
    )
    states = {3: 1}
    assert read_nvlinks(nvml, None) == (), "a GPU without its first link has none"


def test_affinity_has_cores_and_numa_node(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    cores = {0: "0-31,64-95", 1: "32-63,96,100-101", 2: "0-127"}
    nodes = {0: 0, 1: 1, 2: "0-1"}
    topology = sample_topology(nvml_stub, start_sampler, make_profiles(3, cores=cores.get, numa_node=nodes.get))
    assert topology is not None
    assert topology.affinities == (
        GpuAffinity(index=0, cores="0-31,64-95", numa_node=0),
        GpuAffinity(index=1, cores="32-63,96,100-101", numa_node=1),
        GpuAffinity(index=2, cores="0-127", numa_node=None),
    )


def test_single_gpu_has_affinity_without_pairs(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    topology = sample_topology(nvml_stub, start_sampler, make_profiles(1, cores="0-7"))
    assert topology == Topology((), (GpuAffinity(index=0, cores="0-7"),))


def test_topology_is_none_without_driver_support(nvml_stub: NvmlStub, start_sampler: Start) -> None:
    errors = dict.fromkeys(("topology_error", "affinity_error", "nvlink_remote_error"), stubs.NOT_SUPPORTED)
    assert sample_topology(nvml_stub, start_sampler, make_profiles(2, **errors)) is None


def test_topology_of_an_old_driver_is_partial(old_nvml_stub: NvmlStub, start_sampler: Start) -> None:
    gpus = make_profiles(2, ancestors=f"{SYS},{SYS}", cores="0-7", numa_node=0, peers="0,0")
    assert sample_topology(old_nvml_stub, start_sampler, gpus) == Topology(
        (GpuPair(one=0, other=1, path="SYS", peer_access=True),),
        (GpuAffinity(index=0, cores="0-7"), GpuAffinity(index=1, cores="0-7")),
    )


def test_ranges_match_linux_notation() -> None:
    assert find_set_bits([0b1011, 0, 1]) == [0, 1, 3, 128]
    assert format_ranges([0, 1, 3, 128]) == "0-1,3,128"
    assert format_ranges(range(64)) == "0-63"
    assert format_ranges([]) == ""
