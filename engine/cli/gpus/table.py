"""A snapshot as a table for people."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from engine.cli.gpus.details import gpu_details, topology_lines
from engine.cli.gpus.layout import UNKNOWN, Column, Line, Tone, aligned, shortened, table_width
from engine.cli.gpus.processes import process_lines
from engine.cli.gpus.remarks import clock, remarks
from engine.contract.devices import Gpu, Snapshot
from engine.gpus.quantities import GIB
from engine.system.plain_text import escaped

LONGEST_BAR = 12
SHORTEST_BAR = 4
SHORTEST_NAME = 12
LONGEST_CPU_NAME = 24
"""A processor's name makes the column of names no wider than this; some have fifty characters."""
FEWEST_COLUMNS = 3


def snapshot_lines(snapshot: Snapshot, width: int = 100, *, details: bool = False) -> list[Line]:
    """All devices, who uses the GPUs, and why something is missing; `details` adds all that is known of each GPU.

    At most `width` characters wide, which 60 suffice for. Control characters, which a process may well have in its name,
    are replaced.
    """
    numbers = gpu_numbers(snapshot.gpus)
    lines = [Line(_title(snapshot), "dim"), Line("")]
    lines += _device_lines(snapshot, numbers, width)
    if details:
        for gpu in snapshot.gpus:
            lines += [Line(""), *gpu_details(gpu, numbers, width)]
        lines += topology_lines(snapshot, numbers)
    lines += process_lines(snapshot, numbers, width)
    if snapshot.nvml.message:
        tone: Tone = "plain" if snapshot.nvml.status == "ok" else "warning"
        lines += [Line(""), *(Line(text, tone) for text in textwrap.wrap(snapshot.nvml.message, width))]
    return [_as_shown(line, width) for line in lines]


def gpu_numbers(gpus: Sequence[Gpu]) -> dict[str, str]:
    """What each GPU is called, by UUID: CUDA's number, as `--devices` takes it, or NVML's where CUDA counts none.

    A MIG instance is called by its GPU's number and its own: "0/3".
    """
    cuda = any(gpu.cuda_index is not None for gpu in gpus if gpu.mig is None)
    numbers: dict[str, str] = {}
    for gpu in gpus:
        index = gpu.cuda_index if cuda else gpu.nvml_index
        numbers[gpu.uuid] = UNKNOWN if index is None else str(index)
        if gpu.mig is not None:
            part = f"{gpu.mig.gpu_instance}" + (f"/{gpu.mig.compute_instance}" if gpu.mig.compute_instance else "")
            numbers[gpu.uuid] = f"{numbers.get(gpu.mig.parent_uuid, UNKNOWN)}/{part}"
    return numbers


def gib_of(used: int | None, total: int | None) -> str | None:
    """ "41.2 / 140.4 GiB"; None where neither is known."""
    if used is None and total is None:
        return None
    amount = UNKNOWN if used is None else f"{used / GIB:.1f}"
    whole = "" if total is None else f"{total / GIB:.1f}"
    return f"{amount.rjust(len(whole))}{f' / {whole}' if whole else ''} GiB"


def _as_shown(line: Line, width: int) -> Line:
    """The line as it is printed, which is longer where a name holds what a terminal would obey, within `width` again."""
    text = escaped(line.text)
    return line if text == line.text else Line(shortened(text, width), line.tone)


def _title(snapshot: Snapshot) -> str:
    nvml = snapshot.nvml
    parts = [snapshot.host, clock(snapshot.time)]
    parts += [f"driver {nvml.driver_version}"] if nvml.driver_version else []
    parts += [f"CUDA {nvml.cuda_version}"] if nvml.cuda_version else []
    return " · ".join(parts)


def _device_lines(snapshot: Snapshot, numbers: Mapping[str, str], width: int) -> list[Line]:
    columns, bar = _fitted(_columns(snapshot, numbers), width)
    head, *rows = aligned(columns, bar)
    lines = [Line(head, "head")]
    indent = " " * (len(columns[0].title) + 2)
    for gpu, row in zip(snapshot.gpus, rows, strict=False):
        lines.append(Line(row, "dim" if gpu.lost or gpu.asleep else "plain"))
        for remark in remarks(gpu):
            tone: Tone = "warning" if remark.alarming else "dim"
            lines += [Line(f"{indent}{text}", tone) for text in textwrap.wrap(remark.text, width - len(indent))]
    return [*lines, Line(rows[-1])]


def _columns(snapshot: Snapshot, numbers: Mapping[str, str]) -> list[Column]:
    """The table's columns, the more dispensable the further to the right; the CPU is the last row."""
    gpus, cpu = snapshot.gpus, snapshot.cpu
    orders_differ = any(gpu.cuda_index not in (None, gpu.nvml_index) for gpu in gpus)
    loads = [*(gpu.utilization_percent for gpu in gpus), cpu.load_percent]
    temperatures = [*(gpu.temperature_c for gpu in gpus), cpu.temperature_c]
    names = [*map(_name, gpus)]
    cpu_name = f"{len(cpu.core_load_percent)} cores, {cpu.name}"
    names.append(shortened(cpu_name, max(LONGEST_CPU_NAME, *map(len, names))) if names else cpu_name)
    held = [*((gpu.memory_used_bytes, gpu.memory_total_bytes) for gpu in gpus)]
    held += [(cpu.memory_used_bytes, cpu.memory_total_bytes)]
    return [
        Column("GPU", [*(numbers[gpu.uuid] for gpu in gpus), "CPU"]),
        Column("Name", names, left=True),
        Column("Use", [_rounded(load, "%", 3) for load in loads], [_share(load, 100) for load in loads]),
        Column("Memory", [gib_of(*pair) for pair in held], [_share(*pair) for pair in held]),
        Column("Temp", [_rounded(value, "°C", 2) for value in temperatures]),
        Column("Power", [*(_power(gpu) for gpu in gpus), ""]),
        Column("NVML", [*(str(gpu.nvml_index) for gpu in gpus), ""] if orders_differ else []),
        Column("Clock", [*(_rounded(gpu.sm_clock_mhz, "MHz", 4) for gpu in gpus), ""]),
        Column("Fan", [*(_rounded(gpu.fan_percent, "%", 3) for gpu in gpus), ""]),
    ]


def _fitted(columns: list[Column], width: int) -> tuple[list[Column], int]:
    """As many of `columns` as fit, the names cut where need be, and how long bars may be: 0 for none."""
    columns = [column for column in columns if any(column.cells)]
    while True:
        for bar in (SHORTEST_BAR, 0):
            fitting = _with_names_cut(columns, width, bar)
            room = width - table_width(fitting, bar)
            if room >= 0 and bar:
                bars = sum(1 for column in fitting if column.shares)
                return fitting, min(LONGEST_BAR, bar + room // bars)
            if room >= 0 or len(columns) <= FEWEST_COLUMNS:
                return fitting, 0
        columns = columns[:-1]


def _with_names_cut(columns: list[Column], width: int, bar: int) -> list[Column]:
    over = table_width(columns, bar) - width
    if over <= 0:
        return columns
    number, names, *others = columns
    longest = max(len(cell or "") for cell in names.cells)
    cut = max(SHORTEST_NAME, longest - over)
    return [number, names._replace(cells=[shortened(cell or "", cut) for cell in names.cells]), *others]


def _name(gpu: Gpu) -> str:
    if gpu.mig is not None:
        return f"MIG {gpu.mig.profile}".rstrip()
    return gpu.name.removeprefix("NVIDIA ")


def _rounded(value: float | None, unit: str, figures: int) -> str | None:
    """As wide with few figures as with many, so that nothing moves when the table is drawn again."""
    return None if value is None else f"{value:{figures}.0f} {unit}"


def _power(gpu: Gpu) -> str | None:
    if gpu.power_w is None:
        return None
    limit = "" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}"
    return f"{gpu.power_w:{max(3, len(limit))}.0f}{f' / {limit}' if limit else ''} W"


def _share(used: float | None, total: float | None) -> float | None:
    return None if used is None or not total else used / total
