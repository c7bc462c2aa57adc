"""How the GPUs of this host reach each other, and where in it they sit.

Source: nvml.h, and what `nvidia-smi topo -m` and `nvidia-smi topo -p2p` make of the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import ModuleType
from typing import Any, TypeVar

from engine.contract.devices import GpuAffinity, GpuPair, NvLink, PciPath, Topology

Answer = TypeVar("Answer")

PATHS: dict[int, PciPath] = {0: "BOARD", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""By `nvmlGpuTopologyLevel_t`."""
GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""Of NVLink, by `nvmlNvlinkVersion_t`: its third stands for 2.2, its fifth for 3.1."""
WORD_BITS = 64
CPU_WORDS = 128
"""Room for the 8,192 processors that Linux can be built for."""
NODE_WORDS = 16
READ = 0
"""NVML_P2P_CAPS_INDEX_READ, which pynvml writes as a tuple by a slip."""


@dataclass(frozen=True)
class Node:
    """A whole GPU that may be asked: one that is neither lost nor asleep."""

    index: int
    handle: Any
    bus_id: str | None


def read_topology(nvml: ModuleType, nodes: Sequence[Node]) -> Topology | None:
    """Every pair of `nodes`, and every one's affinity; None where NVML tells nothing of either, as on Windows.

    A few dozen calls for each GPU: to be made once for a set of GPUs.
    """
    ordered = sorted(nodes, key=lambda node: node.index)
    links = {node.index: _Links(nvml, node) for node in ordered} if len(ordered) > 1 else {}
    pairs = tuple(_pair(nvml, links, one, other) for one, other in combinations(ordered, 2))
    affinities = tuple(_affinity(nvml, node) for node in ordered)
    known = any(p.path or p.nvlinks or p.peer_access is not None for p in pairs)
    if not known and not any(affinity.cores or affinity.numa_node is not None for affinity in affinities):
        return None
    return Topology(pairs, affinities)


def read_nvlinks(nvml: ModuleType, handle: Any) -> tuple[NvLink, ...]:
    """A GPU's NVLinks with their state, version and peer; throughput is left out. Empty where it has none."""
    links = []
    for number in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = _told(nvml, lambda link=number: nvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        if state is None and number == 0:
            return ()
        if state is not None:
            links.append(_link(nvml, handle, number, active=state == nvml.NVML_FEATURE_ENABLED))
    return tuple(links)


def _link(nvml: ModuleType, handle: Any, number: int, *, active: bool) -> NvLink:
    if not active:
        return NvLink(link=number)
    peer = _told(nvml, lambda: nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, number).busId)
    return NvLink(
        link=number,
        active=True,
        version=GENERATIONS.get(_told(nvml, lambda: nvml.nvmlDeviceGetNvLinkVersion(handle, number)) or 0),
        peer=_bus_id(peer),
    )


class _Links:
    """The active NVLinks of a GPU, by what they lead to."""

    def __init__(self, nvml: ModuleType, node: Node) -> None:
        active = [link for link in read_nvlinks(nvml, node.handle) if link.active]
        self._peers = [link.peer for link in active]
        self.through_switch = sum(
            _told(nvml, lambda link=link: nvml.nvmlDeviceGetNvLinkRemoteDeviceType(node.handle, link.link))  # type: ignore[misc]
            == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
            for link in active
        )

    def straight_to(self, node: Node) -> int:
        return self._peers.count(_bus_id(node.bus_id)) if node.bus_id else 0


def _pair(nvml: ModuleType, links: dict[int, _Links], one: Node, other: Node) -> GpuPair:
    level = _told(nvml, lambda: nvml.nvmlDeviceGetTopologyCommonAncestor(one.handle, other.handle))
    return GpuPair(
        one=one.index,
        other=other.index,
        path=None if level is None else PATHS.get(level),
        nvlinks=_nvlinks(nvml, links, one, other),
        peer_access=_capable(nvml, READ, one, other),
    )


def _nvlinks(nvml: ModuleType, links: dict[int, _Links], one: Node, other: Node) -> int:
    """Links straight from one to the other; else, where both are on switches that join them, as many as both have."""
    straight = links[one.index].straight_to(other)
    if straight:
        return straight
    through_switch = min(links[one.index].through_switch, links[other.index].through_switch)
    if through_switch and _capable(nvml, nvml.NVML_P2P_CAPS_INDEX_NVLINK, one, other) is False:
        return 0  # a switch can be divided into partitions
    return through_switch


def _capable(nvml: ModuleType, capability: int, one: Node, other: Node) -> bool | None:
    """Whether each of the two can do that with the other's memory."""
    both = [
        _told(nvml, lambda pair=pair: nvml.nvmlDeviceGetP2PStatus(pair[0].handle, pair[1].handle, capability))  # type: ignore[misc]
        for pair in ((one, other), (other, one))
    ]
    if any(status in (None, nvml.NVML_P2P_STATUS_UNKNOWN) for status in both):
        return None
    return all(status == nvml.NVML_P2P_STATUS_OK for status in both)


def _affinity(nvml: ModuleType, node: Node) -> GpuAffinity:
    cores = _told(nvml, lambda: nvml.nvmlDeviceGetCpuAffinity(node.handle, CPU_WORDS))
    nodes = _told(
        nvml, lambda: nvml.nvmlDeviceGetMemoryAffinity(node.handle, NODE_WORDS, nvml.NVML_AFFINITY_SCOPE_NODE)
    )
    near = bits(nodes or ())
    return GpuAffinity(index=node.index, cores=ranges(bits(cores or ())), numa_node=near[0] if len(near) == 1 else None)


def bits(words: Iterable[int]) -> list[int]:
    """Numbers of the bits that are set in words of 64 bits."""
    return [
        affinity * WORD_BITS + bit for affinity, word in enumerate(words) for bit in range(WORD_BITS) if word >> bit & 1
    ]


def ranges(numbers: Sequence[int]) -> str:
    """Rising numbers as Linux writes them: "0-31,64"."""
    told: list[list[int]] = []
    for number in numbers:
        if told and number == told[-1][1] + 1:
            told[-1][1] = number
        else:
            told.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in told)


def _bus_id(told: str | bytes | None) -> str:
    text = told.decode(errors="replace") if isinstance(told, bytes) else told or ""
    return text.upper()


def _told(nvml: ModuleType, call: Callable[[], Answer]) -> Answer | None:
    """What `call` returns, None where it fails: a GPU that is lost meanwhile shows at its next reading."""
    try:
        return call()
    except (nvml.NVMLError, AttributeError):  # AttributeError: a pynvml that is older than the function
        return None
