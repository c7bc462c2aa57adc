"""Read the links between the GPUs of this host, and their proximity to processors.

Source: nvml.h, and the use of the same calls in `nvidia-smi topo -m` and `nvidia-smi topo -p2p`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import ModuleType
from typing import Any, TypeVar

from engine.contract.devices import GpuAffinity, GpuPair, NvLink, PciPath, Topology
from engine.gpus.nvml.calls import decode_text

Answer = TypeVar("Answer")

PATHS: dict[int, PciPath] = {0: "BOARD", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""PCIe paths, keyed by the value of `nvmlGpuTopologyLevel_t`."""
GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""NVLink generations, keyed by the value of `nvmlNvlinkVersion_t`: 3 is NVLink 2.2, and 5 is 3.1."""
WORD_BITS = 64
CPU_WORDS = 128
"""Number of 64-bit words for a set of 8,192 processors, the maximum of Linux."""
NODE_WORDS = 16
READ = 0
"""Value of NVML_P2P_CAPS_INDEX_READ (reading another GPU's memory), which pynvml defines as a tuple by mistake."""


@dataclass(frozen=True)
class Node:
    """GPU in the topology, which is neither lost nor asleep. `index` is its NVML index."""

    index: int
    handle: Any
    bus_id: str | None


def read_topology(nvml: ModuleType, nodes: Sequence[Node]) -> Topology | None:
    """Return the links between all pairs of `nodes`, and the processor affinity of each node.

    Returns None if NVML reports neither, as on Windows. Call this once per set of GPUs, since it makes a few dozen NVML
    calls per GPU.
    """
    ordered = sorted(nodes, key=lambda node: node.index)
    links = {node.index: _Links(nvml, node) for node in ordered} if len(ordered) > 1 else {}
    pairs = tuple(_read_pair(nvml, links, one, other) for one, other in combinations(ordered, 2))
    affinities = tuple(_read_affinity(nvml, node) for node in ordered)
    has_pairs = any(pair.path or pair.nvlinks or pair.peer_access is not None for pair in pairs)
    has_affinities = any(affinity.cores or affinity.numa_node is not None for affinity in affinities)
    return Topology(pairs, affinities) if has_pairs or has_affinities else None


def read_nvlinks(nvml: ModuleType, handle: Any) -> tuple[NvLink, ...]:
    """Return a GPU's NVLinks with their state, version and peer, but without throughput. Empty if it has none."""
    links = []
    for number in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = _try_call(nvml, lambda link=number: nvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        if state is None and number == 0:
            return ()
        if state is not None:
            links.append(_read_link(nvml, handle, number, active=state == nvml.NVML_FEATURE_ENABLED))
    return tuple(links)


def _read_link(nvml: ModuleType, handle: Any, number: int, *, active: bool) -> NvLink:
    """Return the NVLink `number` of a GPU. The version and peer of an inactive link are unknown."""
    if not active:
        return NvLink(link=number)
    peer = _try_call(nvml, lambda: nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number).busId)
    return NvLink(
        link=number,
        active=True,
        version=GENERATIONS.get(_try_call(nvml, lambda: nvml.nvmlDeviceGetNvLinkVersion(handle, number)) or 0),
        peer=_normalize_bus_id(peer),
    )


class _Links:
    """Numbers of a GPU's active NVLinks to each other GPU and to switches."""

    def __init__(self, nvml: ModuleType, node: Node) -> None:
        active = [link for link in read_nvlinks(nvml, node.handle) if link.active]
        self._peers = [link.peer for link in active]
        self.to_switches = 0  # number of links whose other end is a switch
        for number in (link.link for link in active):
            end = _try_call(nvml, lambda link=number: nvml.nvmlDeviceGetNvLinkRemoteDeviceType(node.handle, link))  # type: ignore[misc]
            self.to_switches += end == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH

    def direct_to(self, node: Node) -> int:
        """Return the number of links whose other end is the GPU `node`."""
        return self._peers.count(_normalize_bus_id(node.bus_id)) if node.bus_id else 0


def _read_pair(nvml: ModuleType, links: dict[int, _Links], one: Node, other: Node) -> GpuPair:
    """Return the connections between two GPUs. `links` has the active NVLinks of each GPU by NVML index."""
    level = _try_call(nvml, lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(one.handle, other.handle))
    return GpuPair(
        one=one.index,
        other=other.index,
        path=None if level is None else PATHS.get(level),
        nvlinks=_count_nvlinks(nvml, links, one, other),
        peer_access=_have_capability(nvml, READ, one, other),
    )


def _count_nvlinks(nvml: ModuleType, links: dict[int, _Links], one: Node, other: Node) -> int:
    """Return the number of direct NVLinks between two GPUs.

    If there are none, return the smaller of their numbers of links to switches, or 0 if NVML reports that the switches
    don't connect them. `links` has the active NVLinks of each GPU by NVML index.
    """
    direct = links[one.index].direct_to(other)
    if direct:
        return direct
    through_switch = min(links[one.index].to_switches, links[other.index].to_switches)
    if through_switch and _have_capability(nvml, nvml.NVML_P2P_CAPS_INDEX_NVLINK, one, other) is False:
        return 0  # a switch can be divided into partitions
    return through_switch


def _have_capability(nvml: ModuleType, capability: int, one: Node, other: Node) -> bool | None:
    """Return True if both GPUs support `capability` for each other's memory, or None if that is unknown."""
    both = [
        _try_call(nvml, lambda pair=pair: nvml.nvmlDeviceGetP2PStatus(pair[0].handle, pair[1].handle, capability))  # type: ignore[misc]
        for pair in ((one, other), (other, one))
    ]
    if any(status in (None, nvml.NVML_P2P_STATUS_UNKNOWN) for status in both):
        return None
    return all(status == nvml.NVML_P2P_STATUS_OK for status in both)


def _read_affinity(nvml: ModuleType, node: Node) -> GpuAffinity:
    """Return the cores and the NUMA node closest to the GPU `node`.

    The NUMA node is None if it is unknown or if there are several.
    """
    core_mask = _try_call(nvml, lambda: nvml.nvmlDeviceGetCpuAffinity(node.handle, CPU_WORDS))
    scope = nvml.NVML_AFFINITY_SCOPE_NODE
    node_mask = _try_call(nvml, lambda: nvml.nvmlDeviceGetMemoryAffinity(node.handle, NODE_WORDS, scope))
    numa_nodes = find_set_bits(node_mask or ())
    numa_node = numa_nodes[0] if len(numa_nodes) == 1 else None
    return GpuAffinity(index=node.index, cores=format_ranges(find_set_bits(core_mask or ())), numa_node=numa_node)


def find_set_bits(mask: Iterable[int]) -> list[int]:
    """Return the indices of the set bits in a bit mask of 64-bit integers."""
    return [WORD_BITS * index + bit for index, word in enumerate(mask) for bit in range(WORD_BITS) if word >> bit & 1]


def format_ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers in the style of Linux, e.g. "0-31,64"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _normalize_bus_id(value: str | bytes | None) -> str:
    """Convert a PCI bus id from NVML to upper case, so that two can be compared. Returns "" for None."""
    return decode_text(value or "").upper()


def _try_call(nvml: ModuleType, call: Callable[[], Answer]) -> Answer | None:
    """Return the result of `call`, or None if it fails.

    A lost GPU also makes calls fail. This is not reported here, because the readings of its quantities report it.
    """
    try:
        return call()
    except (nvml.NVMLError, AttributeError):  # AttributeError: a pynvml that is older than the function
        return None
