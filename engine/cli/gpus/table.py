"""A snapshot as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from engine.cli.gpus.details import gpu_details, topology
from engine.cli.gpus.layout import GAP, Column, line, table
from engine.cli.gpus.numbers import gpu_numbers
from engine.cli.gpus.processes import processes
from engine.cli.gpus.remarks import clock, remarks
from engine.contract.devices import Gpu, Snapshot
from engine.gpus.quantities import GIB
from engine.system.format import NOT_KNOWN
from engine.system.plain_text import escaped

LONGEST_CPU_NAME = 24
"""A processor's name makes the column of names no wider than this; some have fifty characters."""


class View:
    """All devices, who uses the GPUs, and why something is missing; `details` adds all that is known of each GPU.

    As wide as the terminal, which 60 characters suffice for.
    """

    def __init__(self, snapshot: Snapshot, *, details: bool = False) -> None:
        self._snapshot = snapshot
        self._details = details

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        snapshot, width = self._snapshot, options.max_width
        numbers = gpu_numbers(snapshot.gpus)
        yield line(_title(snapshot), "dim")
        yield Text()
        yield from _devices(snapshot, numbers, console, options)
        if self._details:
            for gpu in snapshot.gpus:
                yield from gpu_details(gpu, numbers, width)
            yield from topology(snapshot, numbers, width)
        yield from processes(snapshot, numbers, width)
        if snapshot.nvml.message:
            yield Text()
            yield Text(escaped(snapshot.nvml.message), "" if snapshot.nvml.status == "ok" else "yellow")


def gib_of(used: int | None, total: int | None) -> str | None:
    """ "41.2 / 140.4 GiB"; None where neither is known."""
    if used is None and total is None:
        return None
    amount = NOT_KNOWN if used is None else f"{used / GIB:.1f}"
    whole = "" if total is None else f"{total / GIB:.1f}"
    return f"{amount.rjust(len(whole))}{f' / {whole}' if whole else ''} GiB"


def _title(snapshot: Snapshot) -> str:
    nvml = snapshot.nvml
    parts = [snapshot.host, clock(snapshot.time)]
    parts += [f"driver {nvml.driver_version}"] if nvml.driver_version else []
    parts += [f"CUDA {nvml.cuda_version}"] if nvml.cuda_version else []
    return " · ".join(parts)


def _devices(snapshot: Snapshot, numbers: Mapping[str, str], console: Console, options: ConsoleOptions) -> RenderResult:
    """A row for each GPU, with what it gives cause for below it, and one for the CPU."""
    head, *rows = console.render_lines(table(_columns(snapshot, numbers), options.max_width), options, pad=False)
    yield from (*head, Segment.line())
    for gpu, row in zip(snapshot.gpus, rows, strict=False):
        yield from Segment.apply_style(row, console.get_style("dim" if gpu.lost or gpu.asleep else "none"))
        yield Segment.line()
        for remark in remarks(gpu):
            text = Text(remark.text, "yellow" if remark.alarming else "dim")
            yield Padding(text, (0, 0, 0, len("GPU") + GAP), expand=False)
    yield from rows[-1]
    yield Segment.line()


def _columns(snapshot: Snapshot, numbers: Mapping[str, str]) -> list[Column]:
    """The table's columns, the more dispensable the further to the right; the CPU is the last row."""
    gpus, cpu = snapshot.gpus, snapshot.cpu
    orders_differ = any(gpu.cuda_index not in (None, gpu.nvml_index) for gpu in gpus)
    loads = [*(gpu.utilization_percent for gpu in gpus), cpu.load_percent]
    temperatures = [*(gpu.temperature_c for gpu in gpus), cpu.temperature_c]
    names = [*map(_name, gpus)]
    cpu_name = f"{len(cpu.core_load_percent)} cores, {cpu.name}"
    names.append(shorten(cpu_name, max(LONGEST_CPU_NAME, *map(len, names)), placeholder=" …") if names else cpu_name)
    held = [*((gpu.memory_used_bytes, gpu.memory_total_bytes) for gpu in gpus)]
    held += [(cpu.memory_used_bytes, cpu.memory_total_bytes)]
    return [
        Column("GPU", [*(numbers[gpu.uuid] for gpu in gpus), "CPU"]),
        Column("Name", names, name=True),
        Column("Use", [_rounded(load, "%", 3) for load in loads], [_share(load, 100) for load in loads]),
        Column("Memory", [gib_of(*pair) for pair in held], [_share(*pair) for pair in held]),
        Column("Temp", [_rounded(value, "°C", 2) for value in temperatures]),
        Column("Power", [*(_power(gpu) for gpu in gpus), ""]),
        Column("NVML", [*(str(gpu.nvml_index) for gpu in gpus), ""] if orders_differ else []),
        Column("Clock", [*(_rounded(gpu.sm_clock_mhz, "MHz", 4) for gpu in gpus), ""]),
        Column("Fan", [*(_rounded(gpu.fan_percent, "%", 3) for gpu in gpus), ""]),
    ]


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
