"""All that a GPU tells, and how the GPUs reach each other, as text for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.cli.gpus.layout import GAP, Column, line, tables
from engine.cli.gpus.remarks import clock
from engine.contract.devices import Gpu, GpuPair, NvLink, Snapshot, Topology
from engine.gpus.quantities import GIB, QUANTITIES
from engine.system.plain_text import escaped

J_PER_KWH = 3.6e6
_TITLE_WIDTH = 19
_FACT_WIDTH = 48
_UNITS_OF_A_WHOLE = ("GiB", "W", "MHz")
"""Where the end of the scale is worth naming: percentages end at 100, and temperatures have thresholds of their own."""

PATH_WORDS = {
    "BOARD": "one board",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the processor's PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between processors (NUMA nodes)",
}


def gpu_details(gpu: Gpu, numbers: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    """Title and facts of `gpu`, beside one another where `width` allows, headed by an empty line."""
    facts = [(title, told) for title, told in _facts(gpu) if told]
    beside = max(1, width // _FACT_WIDTH)
    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(beside):
        grid.add_column(width=_TITLE_WIDTH)
        grid.add_column(width=(width - GAP) // beside - _TITLE_WIDTH - 2)
    for first in range(0, len(facts), beside):
        grid.add_row(*map(Text, map(escaped, chain.from_iterable(facts[first : first + beside]))))
    yield Text()
    yield line(f"GPU {numbers[gpu.uuid]} · {gpu.name} · {gpu.uuid}", "bold")
    yield Padding(grid, (0, 0, 0, GAP))


def topology(snapshot: Snapshot, numbers: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    """A matrix of what each pair of GPUs talks through, headed by an empty line; nothing where there is no pair."""
    topology = snapshot.topology
    if topology is None or not topology.pairs:
        return
    called = {gpu.nvml_index: numbers[gpu.uuid] for gpu in snapshot.gpus if gpu.mig is None}
    indices = sorted({index for pair in topology.pairs for index in (pair.one, pair.other)} & called.keys())
    yield Text()
    yield from tables(_matrix(topology, indices, called), width)
    yield from (Text(text, "dim") for text in _legend(topology))


def _facts(gpu: Gpu) -> Iterator[tuple[str, str | None]]:
    """All facts by their titles; None or "" for what the GPU does not tell."""
    for quantity in QUANTITIES:
        whole = quantity.highest(gpu) if quantity.unit in _UNITS_OF_A_WHOLE else None
        yield quantity.title, _of(quantity.write, quantity.read(gpu), whole)
    yield "Memory reserved", _told("{:.1f} GiB", gpu.memory_reserved_bytes, 1 / GIB)
    yield "Memory free", _told("{:.1f} GiB", gpu.memory_free_bytes, 1 / GIB)
    yield "Slows down from", _told("{:.0f} °C", gpu.slowdown_c)
    yield "Shuts down from", _told("{:.0f} °C", gpu.shutdown_c)
    yield "Memory at most", _told("{:.0f} °C", gpu.memory_max_c)
    yield "Energy", _told("{:,.2f} kWh since driver load", gpu.energy_j, 1 / J_PER_KWH)
    yield "Performance state", _told("P{}", gpu.performance_state)
    pcie, ecc, retired = gpu.pcie, gpu.ecc, gpu.retired
    generation, width = (
        _of("{:.0f}".format, pcie.generation, pcie.max_generation),
        _of("x{:.0f}".format, pcie.width, pcie.max_width),
    )
    yield "PCIe", _joined(generation and f"gen {generation}", width)
    yield "PCIe replays", _told("{:,}", pcie.replays)
    yield from _nvlinks(gpu.nvlinks)
    yield "ECC", _switch(ecc.enabled)
    yield "Memory errors", _joined(_told("{:,} corrected", ecc.corrected), _told("{:,} not", ecc.uncorrected))
    yield (
        "… lifetime",
        _joined(_told("{:,} corrected", ecc.total_corrected), _told("{:,} not", ecc.total_uncorrected)),
    )
    pages, rows = (
        _sum(retired.pages_single_bit, retired.pages_double_bit),
        _sum(retired.rows_corrected, retired.rows_uncorrected),
    )
    yield "Retired pages", pages and pages + (", more at the next reset" if retired.pages_pending else "")
    state = ", one has failed" if retired.rows_failed else ", more at a reset" if retired.rows_pending else ""
    yield "Remapped rows", rows and rows + state
    yield "Xids", _joined(*(f"{xid.number} ({clock(xid.time)})" for xid in gpu.xids))
    yield "Compute mode", gpu.compute_mode.replace("_", " ")
    yield "Persistence mode", _switch(gpu.persistence)
    yield "MIG", _switch(gpu.mig_enabled)
    yield "PCI bus id", gpu.pci_bus_id
    if gpu.mig is not None:
        yield "MIG instance", _joined(str(gpu.mig.gpu_instance), _told("compute {}", gpu.mig.compute_instance))
    else:
        yield "Numbers", _joined(_told("CUDA {}", gpu.cuda_index) or "not in CUDA", f"NVML {gpu.nvml_index}")


def _nvlinks(links: Sequence[NvLink]) -> Iterator[tuple[str, str]]:
    if links:
        down = _joined(*(str(link.link) for link in links if not link.active))
        up = sum(link.active for link in links)
        yield "NVLinks", f"{up} of {len(links)} up" + (f"; down: {down}" if down else "")
    for link in links:
        received, sent = link.received_bytes_per_s, link.sent_bytes_per_s
        if received is not None and sent is not None:
            yield f"NVLink {link.link}", f"{received / 1e9:.1f} in, {sent / 1e9:.1f} out GB/s"


def _told(form: str, value: float | None, scale: float = 1) -> str | None:
    return None if value is None else form.format(value * scale)


def _of(write: Callable[[float], str], value: float | None, whole: float | None) -> str | None:
    return None if value is None else write(value) + (f" of {write(whole)}" if whole else "")


def _joined(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))


def _sum(*counts: int | None) -> str:
    return f"{sum(filter(None, counts)):,}" if any(count is not None for count in counts) else ""


def _switch(on: bool | None) -> str:
    return "" if on is None else "on" if on else "off"


def _matrix(topology: Topology, indices: Sequence[int], called: Mapping[int, str]) -> list[Column]:
    pairs = {(pair.one, pair.other): pair for pair in topology.pairs}
    affinities = {affinity.index: affinity for affinity in topology.affinities}
    columns = [Column("", [f"GPU {called[index]}" for index in indices], name=True)]
    for other in indices:
        cells = [_cell(pairs.get((min(one, other), max(one, other)))) if one != other else "×" for one in indices]
        columns.append(Column(called[other], cells))
    cores = [affinity.cores or None if (affinity := affinities.get(index)) else None for index in indices]
    nodes = [
        str(affinity.numa_node) if (affinity := affinities.get(i)) and affinity.numa_node is not None else None
        for i in indices
    ]
    return [*columns, Column("NUMA", nodes), Column("Cores", cores, name=True)]


def _cell(pair: GpuPair | None) -> str | None:
    """ "NV18" for so many NVLinks, else the path; with "*" where neither can read the other's memory."""
    if pair is None:
        return None
    text = f"NV{pair.nvlinks}" if pair.nvlinks else pair.path
    return f"{text}*" if text and pair.peer_access is False else text


def _legend(topology: Topology) -> Iterator[str]:
    """What the matrix's words mean, of those that are in it."""
    if any(pair.nvlinks for pair in topology.pairs):
        yield "NV18: 18 NVLinks, and so on"
    used = {pair.path for pair in topology.pairs if not pair.nvlinks}
    for path, words in PATH_WORDS.items():
        if path in used:
            yield f"{path}: {words}"
    if any(pair.peer_access is False for pair in topology.pairs):
        yield "*: no peer access; data between them goes through host memory"
