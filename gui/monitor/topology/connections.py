"""Descriptions of the connections between the GPUs of a host, with advice for training on several of them.

Communication of the strategies for P parameters on N devices (Rajbhandari et al., "ZeRO", 2020, section 7): about
2 P numbers per step and device for DDP, 3 P for FSDP, and only the activations at the split points for a pipeline.
Codes of connections are those of `nvidia-smi topo -m`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Literal, NamedTuple

from engine.contract.devices import Gpu, GpuPair, PciPath, Topology, gpu_title
from engine.system.format import listed
from gui.format import counted
from gui.titles import format_gpu_names, recommended_strategy_title
from gui.translation import tr

Kind = Literal["nvlink", "switch", "bridge", "nodes", "unknown"]
"""Kinds of connections between two GPUs, closest first."""

KINDS: dict[PciPath, Kind] = {
    "BOARD": "switch",
    "PIX": "switch",
    "PXB": "switch",
    "PHB": "bridge",
    "NODE": "bridge",
    "SYS": "nodes",
}
PATHS: dict[PciPath, str] = {
    "BOARD": tr("on one board"),
    "PIX": tr("through one PCIe switch"),
    "PXB": tr("through several PCIe switches, without the processor"),
    "PHB": tr("through the processor's PCIe bridge"),
    "NODE": tr("through several PCIe bridges of one processor"),
    "SYS": tr("through the processors and the link between them"),
}
SHORT: dict[PciPath, str] = {
    "BOARD": tr("one board"),
    "PIX": tr("one switch"),
    "PXB": tr("switches"),
    "PHB": tr("PCIe bridge"),
    "NODE": tr("processor"),
    "SYS": tr("processors"),
}


class ConnectedGpus(NamedTuple):
    """GPUs of a host, sorted by CUDA number, and the known connection of each pair, by the NVML indices of both GPUs."""

    gpus: tuple[Gpu, ...]
    pairs: dict[frozenset[int], GpuPair]

    def pair(self, one: Gpu, other: Gpu) -> GpuPair | None:
        return self.pairs.get(frozenset((one.nvml_index, other.nvml_index)))


def make_connected_gpus(gpus: Sequence[Gpu], topology: Topology) -> ConnectedGpus:
    """Combine `gpus`, sorted by CUDA number, with their connections in `topology`."""
    return ConnectedGpus(tuple(gpus), {frozenset((pair.one, pair.other)): pair for pair in topology.pairs})


def kind(pair: GpuPair | None) -> Kind:
    """Return the kind of a connection, which is "unknown" for None."""
    if pair is None:
        return "unknown"
    if pair.nvlinks:
        return "nvlink"
    return KINDS[pair.path] if pair.path is not None else "unknown"


def code(pair: GpuPair | None) -> str:
    """Return the `nvidia-smi topo` code of a connection, such as "NV18" or "PIX", or a dash if it is unknown (None)."""
    if pair is not None and pair.nvlinks:
        return f"NV{pair.nvlinks}"
    return pair.path if pair is not None and pair.path is not None else "–"


def describe_briefly(pair: GpuPair | None) -> str:
    """Describe a connection in two words, as in "18 NVLinks" or "one switch". A connection of None is "unknown"."""
    if pair is not None and pair.nvlinks:
        return counted(pair.nvlinks, "NVLink")
    return SHORT[pair.path] if pair is not None and pair.path is not None else tr("unknown")


def describe(pair: GpuPair | None, one: str, other: str) -> str:
    """Describe the connection between the GPUs titled `one` and `other`, for a tool tip.

    If `pair` is None, the text says that the connection is unknown.
    """
    if pair is not None and pair.nvlinks:
        sentences = [
            tr("{one} and {other} are connected over {nvlinks}.").format(
                one=one, other=other, nvlinks=counted(pair.nvlinks, "NVLink")
            )
        ]
    elif pair is not None and pair.path is not None:
        sentences = [tr("{one} and {other} are connected {path}.").format(one=one, other=other, path=PATHS[pair.path])]
    else:
        sentences = [tr("How {one} and {other} are connected is unknown.").format(one=one, other=other)]
    if pair is not None and pair.peer_access:
        sentences.append(tr("Each can read the other's memory directly."))
    elif pair is not None and pair.peer_access is False:
        sentences.append(tr("Neither can read the other's memory directly; transfers go through host memory."))
    return " ".join(sentences)


def recommend_strategies(connected: ConnectedGpus) -> str:
    """Return sentences that recommend strategies for two or more GPUs, based on the connections between them."""
    sentences = [_advise_for_nvlink(connected) or _advise_for_pcie(connected), _describe_peer_access(connected)]
    return " ".join(sentence for sentence in sentences if sentence)


def describe_lost_gpus(lost: Sequence[Gpu]) -> str:
    """Return a sentence about GPUs that are missing because they are lost, or "" if there are none."""
    if not lost:
        return ""
    return (
        tr("{lost} is lost and not shown here.").format(lost=_join_names(lost))
        if len(lost) == 1
        else tr("{lost} are lost and not shown here.").format(lost=_join_names(lost))
    )


def _advise_for_nvlink(connected: ConnectedGpus) -> str:
    """Return the advice for GPUs that have NVLink, or "" if none has."""
    groups = group_connected_gpus(connected, lambda pair: pair.nvlinks > 0)
    if len(groups) == len(connected.gpus):
        return ""
    if len(groups) > 1:
        return _advise_for_groups(
            connected, groups, tr("{gpus} are connected by NVLink."), tr("{gpus} are each connected by NVLink.")
        )
    counts = [pair.nvlinks for pair in connected.pairs.values()]
    everyone = _name_all_gpus(connected)
    is_every_pair_linked = min(counts) > 0 and len(counts) >= len(_every_pair(connected))
    if not is_every_pair_linked:
        return tr(
            "{everyone} are connected by NVLink, but not every pair directly. Every strategy runs well, a pipeline "
            "best with directly connected neighbors."
        ).format(everyone=everyone)
    how_many = counted(max(counts), "NVLink")
    if min(counts) < max(counts):
        how_many = tr("{fewest} to {most}").format(fewest=min(counts), most=how_many)
    if len(counts) == 1:
        connection = tr("{everyone} are connected by {how_many}.").format(everyone=everyone, how_many=how_many)
    else:
        connection = tr("{everyone} are connected by {how_many} between each pair.").format(
            everyone=everyone, how_many=how_many
        )
    sharded = recommended_strategy_title("shard")
    return tr("{way} Every strategy runs well, even {sharded}, which communicates the most.").format(
        way=connection, sharded=sharded
    )


def _advise_for_pcie(connected: ConnectedGpus) -> str:
    """Return the advice for GPUs that are connected by PCIe only."""
    kinds = {kind(connected.pairs.get(pair)) for pair in _every_pair(connected)}
    if kinds == {"unknown"}:
        return tr("How the GPUs are connected is unknown.")
    switch_groups = group_connected_gpus(connected, lambda pair: kind(pair) == "switch")
    everyone = _name_all_gpus(connected)
    replicated, sharded = recommended_strategy_title("replicate"), recommended_strategy_title("shard")
    if len(switch_groups) == 1:
        return tr(
            "{everyone} share PCIe switches. {replicated} runs well; {sharded} "
            "communicates 1.5 times as much and pays off only when memory is short."
        ).format(everyone=everyone, replicated=replicated, sharded=sharded)
    if len(switch_groups) < len(connected.gpus):
        return _advise_for_groups(
            connected, switch_groups, tr("{gpus} share PCIe switches."), tr("{gpus} each share PCIe switches.")
        )
    same_node = group_connected_gpus(connected, lambda pair: kind(pair) == "bridge")
    if 1 < len(same_node) < len(connected.gpus):
        return _advise_for_groups(
            connected, same_node, tr("{gpus} are on one processor."), tr("{gpus} are each on one processor.")
        )
    if "nodes" in kinds:
        connection = tr("{everyone} communicate through the processors.").format(everyone=everyone)
    else:
        connection = tr("{everyone} communicate through the processor.").format(everyone=everyone)
    return tr(
        "{way} Prefer strategies with little communication: {recommended_strategy_title}, or {replicated} "
        "with large batches. {sharded} pays off only if the model does not fit otherwise."
    ).format(
        way=connection,
        recommended_strategy_title=recommended_strategy_title("pipeline"),
        replicated=replicated,
        sharded=sharded,
    )


_BETWEEN: dict[Kind, str] = {
    "switch": tr("Between groups, data goes through PCIe switches."),
    "bridge": tr("Between groups, data goes through the processor."),
    "nodes": tr("Between groups, data goes through the processors."),
}


def _advise_for_groups(connected: ConnectedGpus, groups: Sequence[Sequence[Gpu]], one: str, several: str) -> str:
    """Return the advice for groups of closely connected GPUs.

    The first sentence is `one` if only one group has several GPUs, otherwise `several`. Both contain "{gpus}", which
    is replaced by the names of the GPUs in these groups.
    """
    together = [_join_names(group) for group in groups if len(group) > 1]
    alone = [gpu for group in groups if len(group) == 1 for gpu in group]
    sentences = [(several if len(together) > 1 else one).format(gpus=listed(together))]
    if alone:
        separate = tr("{gpus} is separate.") if len(alone) == 1 else tr("{gpus} are separate.")
        sentences.append(separate.format(gpus=_join_names(alone)))
    farthest = max(
        (kind(pair) for pair in _connections_between(connected, groups)),
        key=("nvlink", "switch", "bridge", "nodes", "unknown").index,  # from near to far
    )
    sentences.append(_BETWEEN.get(farthest, tr("Between groups, data takes an unknown path.")))
    sizes = {len(group) for group in groups}
    if len(sizes) == 1:
        sentences.append(
            tr(
                "Prefer {first} or {second} with one replica in each group: they communicate least between groups."
            ).format(
                first=recommended_strategy_title("replicate", "shard"),
                second=recommended_strategy_title("replicate", "pipeline"),
            )
        )
    else:
        sentences.append(
            tr(
                "Prefer to train on {largest} alone, or across the groups with "
                "{recommended_strategy_title}, which communicates least."
            ).format(
                largest=_join_names(max(groups, key=len)),
                recommended_strategy_title=recommended_strategy_title("pipeline"),
            )
        )
    return " ".join(sentences)


def _describe_peer_access(connected: ConnectedGpus) -> str:
    """Describe which GPUs can read each other's memory directly, or return "" if this is unknown."""
    known = [pair.peer_access for pair in connected.pairs.values() if pair.peer_access is not None]
    if not known:
        return ""
    if all(known):
        return (
            tr("Each can read the others' memory directly.")
            if len(connected.gpus) > 2
            else tr("Each can read the other's memory directly.")
        )
    if not any(known):
        return tr("None can read another's memory directly; transfers go through host memory, which is slow.")
    return tr(
        "{unreadable} of {pairs} pairs can't read each other's memory directly; their transfers go through host memory."
    ).format(unreadable=len(known) - sum(known), pairs=len(known))


def group_connected_gpus(connected: ConnectedGpus, is_connected: Callable[[GpuPair], bool]) -> list[tuple[Gpu, ...]]:
    """Group the GPUs so that GPUs that are connected, directly or through other GPUs, are in the same group.

    Two GPUs are directly connected if `is_connected` is True for their pair.
    """
    groups: list[list[Gpu]] = []
    for gpu in connected.gpus:
        merged, others = [gpu], []  # the groups that the GPU joins become one
        for group in groups:
            pairs = [connected.pair(gpu, member) for member in group]
            if any(pair is not None and is_connected(pair) for pair in pairs):
                merged += group
            else:
                others.append(group)
        groups = [*others, merged]
    order = {gpu.uuid: number for number, gpu in enumerate(connected.gpus)}
    sorted_groups = [tuple(sorted(group, key=lambda gpu: order[gpu.uuid])) for group in groups]
    return sorted(sorted_groups, key=lambda group: order[group[0].uuid])


def _join_names(gpus: Sequence[Gpu]) -> str:
    return format_gpu_names([gpu_title(gpu) for gpu in gpus])


def _name_all_gpus(connected: ConnectedGpus) -> str:
    """Return the start of a sentence about all GPUs, such as "The two GPUs" or "All 4 GPUs"."""
    return (
        tr("The two GPUs")
        if len(connected.gpus) == 2
        else tr("All {gpus_count} GPUs").format(gpus_count=len(connected.gpus))
    )


def _every_pair(connected: ConnectedGpus) -> list[frozenset[int]]:
    """Return the pairs of GPUs, each as a set of two NVML indices."""
    return [frozenset((one.nvml_index, other.nvml_index)) for one, other in combinations(connected.gpus, 2)]


def _connections_between(connected: ConnectedGpus, groups: Sequence[Sequence[Gpu]]) -> list[GpuPair | None]:
    """Return the connection of each pair of GPUs in different groups. None means that it is unknown."""
    return [
        connected.pair(one, other)
        for group, other_group in combinations(groups, 2)
        for one, other in product(group, other_group)
    ]
