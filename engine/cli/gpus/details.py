"""All that a GPU tells, and how the GPUs reach each other, as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.cli.gpus.layout import GAP, Column, line, table
from engine.cli.gpus.remarks import clock
from engine.contract.devices import Ecc, Gpu, GpuPair, Retired, Snapshot, Topology
from engine.contract.plain_text import escaped
from engine.contract.quantities import GIB, QUANTITIES

J_PER_KWH = 3.6e6
_TITLE_WIDTH = 19
_FACT_WIDTH = 48
_UNITS_OF_A_WHOLE = ("GiB", "W", "MHz")
"""Where the end of the scale is worth naming: percentages end at 100, and temperatures have thresholds of their own."""

Fact = tuple[str, str]

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
    facts = [*_quantities(gpu), *_memory(gpu), *_limits(gpu), *_links(gpu), *_health(gpu), *_set_up(gpu)]
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
    yield table(_matrix(topology, indices, called), width)
    yield from (Text(text, "dim") for text in _legend(topology))


def _quantities(gpu: Gpu) -> Iterator[Fact]:
    for quantity in QUANTITIES:
        value, highest = quantity.read(gpu), quantity.highest(gpu)
        if value is not None:
            of = highest is not None and quantity.unit in _UNITS_OF_A_WHOLE
            yield quantity.title, quantity.write(value) + (f" of {quantity.write(highest)}" if of else "")


def _memory(gpu: Gpu) -> Iterator[Fact]:
    if gpu.memory_reserved_bytes is not None:
        yield "Memory reserved", f"{gpu.memory_reserved_bytes / GIB:.1f} GiB"
    if gpu.memory_free_bytes is not None:
        yield "Memory free", f"{gpu.memory_free_bytes / GIB:.1f} GiB"


def _limits(gpu: Gpu) -> Iterator[Fact]:
    if gpu.slowdown_c is not None:
        yield "Slows down from", f"{gpu.slowdown_c:.0f} °C"
    if gpu.shutdown_c is not None:
        yield "Shuts down from", f"{gpu.shutdown_c:.0f} °C"
    if gpu.memory_max_c is not None:
        yield "Memory at most", f"{gpu.memory_max_c:.0f} °C"
    if gpu.energy_j is not None:
        yield "Energy", f"{gpu.energy_j / J_PER_KWH:,.2f} kWh since driver load"
    if gpu.performance_state is not None:
        yield "Performance state", f"P{gpu.performance_state}"


def _links(gpu: Gpu) -> Iterator[Fact]:
    pcie = gpu.pcie
    parts = []
    if pcie.generation is not None:
        parts.append(f"gen {pcie.generation}" + (f" of {pcie.max_generation}" if pcie.max_generation else ""))
    if pcie.width is not None:
        parts.append(f"x{pcie.width}" + (f" of x{pcie.max_width}" if pcie.max_width else ""))
    if parts:
        yield "PCIe", ", ".join(parts)
    if pcie.replays is not None:
        yield "PCIe replays", f"{pcie.replays:,}"
    if gpu.nvlinks:
        down = [str(link.link) for link in gpu.nvlinks if not link.active]
        yield "NVLinks", f"{len(gpu.nvlinks) - len(down)} of {len(gpu.nvlinks)} up" + _listed("; down: ", down)
        for link in gpu.nvlinks:
            if link.received_bytes_per_s is not None and link.sent_bytes_per_s is not None:
                yield f"NVLink {link.link}", _traffic(link.received_bytes_per_s, link.sent_bytes_per_s)


def _listed(before: str, items: Sequence[str]) -> str:
    return before + ", ".join(items) if items else ""


def _traffic(received: float, sent: float) -> str:
    return f"{received / 1e9:.1f} in, {sent / 1e9:.1f} out GB/s"


def _health(gpu: Gpu) -> Iterator[Fact]:
    yield from _errors(gpu.ecc)
    yield from _retirements(gpu.retired)
    if gpu.xids:
        yield "Xids", ", ".join(f"{xid.number} ({clock(xid.time)})" for xid in gpu.xids)


def _errors(ecc: Ecc) -> Iterator[Fact]:
    if ecc.enabled is not None:
        yield "ECC", _switch(ecc.enabled)
    for name, corrected, uncorrected in (
        ("Memory errors", ecc.corrected, ecc.uncorrected),
        ("… in its life", ecc.total_corrected, ecc.total_uncorrected),
    ):
        told = [f"{corrected:,} corrected"] if corrected is not None else []
        told += [f"{uncorrected:,} not"] if uncorrected is not None else []
        if told:
            yield name, ", ".join(told)


def _retirements(retired: Retired) -> Iterator[Fact]:
    if retired.pages_single_bit is not None or retired.pages_double_bit is not None:
        count = (retired.pages_single_bit or 0) + (retired.pages_double_bit or 0)
        yield "Retired pages", f"{count:,}" + (", more at the next reset" if retired.pages_pending else "")
    if retired.rows_corrected is not None or retired.rows_uncorrected is not None:
        count = (retired.rows_corrected or 0) + (retired.rows_uncorrected or 0)
        state = ", one has failed" if retired.rows_failed else ", more at a reset" if retired.rows_pending else ""
        yield "Remapped rows", f"{count:,}{state}"


def _set_up(gpu: Gpu) -> Iterator[Fact]:
    if gpu.compute_mode:
        yield "Compute mode", gpu.compute_mode.replace("_", " ")
    if gpu.persistence is not None:
        yield "Persistence mode", _switch(gpu.persistence)
    if gpu.mig_enabled is not None:
        yield "MIG", _switch(gpu.mig_enabled)
    if gpu.pci_bus_id is not None:
        yield "PCI bus id", gpu.pci_bus_id
    if gpu.mig is not None:
        compute = "" if gpu.mig.compute_instance is None else f", compute {gpu.mig.compute_instance}"
        yield "MIG instance", f"{gpu.mig.gpu_instance}{compute}"
    else:
        cuda = "not in CUDA" if gpu.cuda_index is None else f"CUDA {gpu.cuda_index}"
        yield "Numbers", f"{cuda}, NVML {gpu.nvml_index}"


def _switch(on: bool) -> str:
    return "on" if on else "off"


def _matrix(topology: Topology, indices: Sequence[int], called: Mapping[int, str]) -> list[Column]:
    pairs = {(pair.one, pair.other): pair for pair in topology.pairs}
    places = {place.index: place for place in topology.places}
    columns = [Column("", [f"GPU {called[index]}" for index in indices], name=True)]
    for other in indices:
        cells = [_cell(pairs.get((min(one, other), max(one, other)))) if one != other else "×" for one in indices]
        columns.append(Column(called[other], cells))
    cores = [place.cores or None if (place := places.get(index)) else None for index in indices]
    nodes = [
        str(place.numa_node) if (place := places.get(i)) and place.numa_node is not None else None for i in indices
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
        yield "*: no peer access; what they exchange goes through the host's memory"
