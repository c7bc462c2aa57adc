"""Format all readings of a GPU, and the links between GPUs, as text for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from engine.cli.gpus.layout import GAP, Column, create_tables, format_line
from engine.cli.gpus.remarks import format_clock_time
from engine.contract.devices import Gpu, GpuAffinity, GpuPair, NvLink, Snapshot, Topology
from engine.gpus.quantities import GIB, QUANTITIES
from engine.system.plain_text import escape

J_PER_KWH = 3.6e6
_TITLE_WIDTH = 19
_FACT_WIDTH = 48
_UNITS_WITH_LIMIT = ("GiB", "W", "MHz")
"""Units of quantities that are shown with their maximum. Temperatures have separate thresholds."""

PATH_WORDS = {
    "BOARD": "one board",
    "PIX": "one PCIe switch",
    "PXB": "several PCIe switches",
    "PHB": "the processor's PCIe host bridge",
    "NODE": "host bridges of one NUMA node",
    "SYS": "the link between processors (NUMA nodes)",
}


def render_gpu_details(gpu: Gpu, numbers: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    """Yield an empty line, the title and the facts of `gpu`, in as many columns as fit.

    `numbers` are the displayed numbers of the GPUs by UUID, and `width` is that of the terminal in characters.
    """
    facts = [(title, text) for title, text in _list_facts(gpu) if text]
    columns = max(1, width // _FACT_WIDTH)
    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(columns):
        grid.add_column(width=_TITLE_WIDTH)
        grid.add_column(width=(width - GAP) // columns - _TITLE_WIDTH - 2)
    for first in range(0, len(facts), columns):
        grid.add_row(*map(Text, map(escape, chain.from_iterable(facts[first : first + columns]))))
    yield Text()
    yield format_line(f"GPU {numbers[gpu.uuid]} · {gpu.name} · {gpu.uuid}", "bold")
    yield Padding(grid, (0, 0, 0, GAP))


def render_topology(snapshot: Snapshot, numbers: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    """Yield an empty line and a matrix of the links between GPUs, or nothing if there are none or they are unknown.

    See `render_gpu_details` for the arguments.
    """
    topology = snapshot.topology
    if topology is None or not topology.pairs:
        return
    names = {gpu.nvml_index: numbers[gpu.uuid] for gpu in snapshot.gpus if gpu.mig is None}
    indices = sorted({index for pair in topology.pairs for index in (pair.one, pair.other)} & names.keys())
    yield Text()
    yield from create_tables(_create_matrix(topology, indices, names), width)
    yield from (Text(text, "dim") for text in _explain_abbreviations(topology))


def _list_facts(gpu: Gpu) -> Iterator[tuple[str, str | None]]:
    """Yield the title and the text of each fact about a GPU.

    The text is None or "" if the GPU doesn't report the fact.
    """
    for quantity in QUANTITIES:
        limit = quantity.highest(gpu) if quantity.unit in _UNITS_WITH_LIMIT else None
        yield quantity.title, _format_with_limit(quantity.write, quantity.read(gpu), limit)
    yield "Memory reserved", _format_value("{:.1f} GiB", gpu.memory_reserved_bytes, 1 / GIB)
    yield "Memory free", _format_value("{:.1f} GiB", gpu.memory_free_bytes, 1 / GIB)
    yield "Slows down from", _format_value("{:.0f} °C", gpu.slowdown_c)
    yield "Shuts down from", _format_value("{:.0f} °C", gpu.shutdown_c)
    yield "Memory at most", _format_value("{:.0f} °C", gpu.memory_max_c)
    yield "Energy", _format_value("{:,.2f} kWh since driver load", gpu.energy_j, 1 / J_PER_KWH)
    yield "Performance state", _format_value("P{}", gpu.performance_state)
    yield from _list_bus_facts(gpu)
    yield from _list_memory_facts(gpu)
    yield "Xids", _join_known(*(f"{xid.number} ({format_clock_time(xid.time)})" for xid in gpu.xids))
    yield "Compute mode", gpu.compute_mode.replace("_", " ")
    yield "Persistence mode", _format_on_or_off(gpu.persistence)
    yield "MIG", _format_on_or_off(gpu.mig_enabled)
    yield "PCI bus id", gpu.pci_bus_id
    if gpu.mig is not None:
        yield (
            "MIG instance",
            _join_known(str(gpu.mig.gpu_instance), _format_value("compute {}", gpu.mig.compute_instance)),
        )
    else:
        yield (
            "Numbers",
            _join_known(_format_value("CUDA {}", gpu.cuda_index) or "not in CUDA", f"NVML {gpu.nvml_index}"),
        )


def _list_bus_facts(gpu: Gpu) -> Iterator[tuple[str, str | None]]:
    """Yield the title and the text of each fact about PCIe and NVLink. Unknown facts are None or empty."""
    pcie = gpu.pcie
    generation = _format_with_limit("{:.0f}".format, pcie.generation, pcie.max_generation)
    width = _format_with_limit("x{:.0f}".format, pcie.width, pcie.max_width)
    yield "PCIe", _join_known(generation and f"gen {generation}", width)
    yield "PCIe replays", _format_value("{:,}", pcie.replays)
    yield from _list_nvlink_facts(gpu.nvlinks)


def _list_memory_facts(gpu: Gpu) -> Iterator[tuple[str, str | None]]:
    """Yield the title and the text of each fact about memory errors and retired memory. Unknown texts are empty."""
    ecc, retired = gpu.ecc, gpu.retired
    yield "ECC", _format_on_or_off(ecc.enabled)
    yield "Memory errors", _format_error_counts(ecc.corrected, ecc.uncorrected)
    yield "… lifetime", _format_error_counts(ecc.total_corrected, ecc.total_uncorrected)
    pages = _format_sum(retired.pages_single_bit, retired.pages_double_bit)
    rows = _format_sum(retired.rows_corrected, retired.rows_uncorrected)
    if pages and retired.pages_pending:
        pages += ", more at the next reset"
    yield "Retired pages", pages
    if rows and retired.rows_failed:
        rows += ", one has failed"
    elif rows and retired.rows_pending:
        rows += ", more at a reset"
    yield "Remapped rows", rows


def _format_error_counts(corrected: int | None, uncorrected: int | None) -> str:
    return _join_known(_format_value("{:,} corrected", corrected), _format_value("{:,} not", uncorrected))


def _list_nvlink_facts(links: Sequence[NvLink]) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of facts about NVLinks: the number of active links, and the traffic on each link.

    Links with unknown traffic are left out.
    """
    if links:
        down = _join_known(*(str(link.link) for link in links if not link.active))
        up = sum(link.active for link in links)
        yield "NVLinks", f"{up} of {len(links)} up" + (f"; down: {down}" if down else "")
    for link in links:
        received, sent = link.received_bytes_per_s, link.sent_bytes_per_s
        if received is not None and sent is not None:
            yield f"NVLink {link.link}", f"{received / 1e9:.1f} in, {sent / 1e9:.1f} out GB/s"


def _format_value(template: str, value: float | None, scale: float = 1) -> str | None:
    """Insert the scaled value into a template for `str.format`, or return None if it is unknown."""
    return None if value is None else template.format(value * scale)


def _format_with_limit(write: Callable[[float], str], value: float | None, limit: float | None) -> str | None:
    """Format a value with its maximum, as in "120 W of 350 W", or return None if the value is unknown.

    `write` formats a number. The maximum is left out if it is unknown.
    """
    return None if value is None else write(value) + (f" of {write(limit)}" if limit else "")


def _join_known(*texts: str | None) -> str:
    return ", ".join(filter(None, texts))


def _format_sum(*counts: int | None) -> str:
    """Format the sum of the known counts, or return "" if none is known."""
    return f"{sum(filter(None, counts)):,}" if any(count is not None for count in counts) else ""


def _format_on_or_off(is_on: bool | None) -> str:
    if is_on is None:
        return ""
    return "on" if is_on else "off"


def _create_matrix(topology: Topology, indices: Sequence[int], names: Mapping[int, str]) -> list[Column]:
    """Return the columns of the matrix of links: names, links to each GPU, NUMA nodes and cores.

    `indices` are the NVML indices of the GPUs, and `names` their displayed numbers by index.
    """
    pairs = {(pair.one, pair.other): pair for pair in topology.pairs}
    affinities = {affinity.index: affinity for affinity in topology.affinities}

    def format_cell(row: int, column: int) -> str | None:
        if row == column:
            return "×"
        return _format_link(pairs.get((min(row, column), max(row, column))))  # the lower index comes first

    columns = [Column("", [f"GPU {names[index]}" for index in indices], is_name=True)]
    columns += [Column(names[column], [format_cell(row, column) for row in indices]) for column in indices]
    known = [affinities.get(index, GpuAffinity(index=index)) for index in indices]
    cores = [affinity.cores or None for affinity in known]
    nodes = [None if affinity.numa_node is None else str(affinity.numa_node) for affinity in known]
    return [*columns, Column("NUMA", nodes), Column("Cores", cores, is_name=True)]


def _format_link(pair: GpuPair | None) -> str | None:
    """Format the link between two GPUs, or return None if it is unknown.

    The text is "NV18" for 18 NVLinks, otherwise the kind of PCIe path. A "*" means that the GPUs can't read each
    other's memory.
    """
    if pair is None:
        return None
    text = f"NV{pair.nvlinks}" if pair.nvlinks else pair.path
    return f"{text}*" if text and pair.peer_access is False else text


def _explain_abbreviations(topology: Topology) -> Iterator[str]:
    """Yield explanations of the abbreviations in the matrix."""
    if any(pair.nvlinks for pair in topology.pairs):
        yield "NV18: 18 NVLinks, and so on"
    used = {pair.path for pair in topology.pairs if not pair.nvlinks}
    for path, words in PATH_WORDS.items():
        if path in used:
            yield f"{path}: {words}"
    if any(pair.peer_access is False for pair in topology.pairs):
        yield "*: no peer access; data between them goes through host memory"
