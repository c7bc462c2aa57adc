"""Format a snapshot as a table for users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import shorten

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from engine.cli.gpus.details import render_gpu_details, render_topology
from engine.cli.gpus.layout import GAP, Column, create_table, format_line
from engine.cli.gpus.remarks import format_clock_time, list_remarks, number_gpus
from engine.contract.devices import Gpu, GpuProcess, Snapshot
from engine.gpus.quantities import GIB
from engine.system.format import NOT_KNOWN, counted, duration, size, with_unit
from engine.system.plain_text import escape

MAX_CPU_NAME = 24
"""Maximum width of the CPU's name in the column of names, in characters.

If a GPU has a longer name, the CPU's name may have that width, too.
"""
_PROCESS_TYPES = {"compute": "C", "graphics": "G", "both": "C+G"}
"""Abbreviations of process types, as in nvidia-smi."""


class View:
    """View of a snapshot for the terminal: all devices, the processes on GPUs, and the reason if GPUs are missing.

    If `details` is True, all readings of the GPUs are added.
    """

    def __init__(self, snapshot: Snapshot, *, details: bool = False) -> None:
        self._snapshot = snapshot
        self._details = details

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts of the view, as required by rich."""
        snapshot, width = self._snapshot, options.max_width
        numbers = number_gpus(snapshot.gpus)
        yield format_line(_format_title(snapshot), "dim")
        yield Text()
        yield from _render_devices(snapshot, numbers, console, options)
        if self._details:
            for gpu in snapshot.gpus:
                yield from render_gpu_details(gpu, numbers, width)
            yield from render_topology(snapshot, numbers, width)
        yield from _render_processes(snapshot, numbers, width)
        if snapshot.nvml.message:
            yield Text()
            yield Text(escape(snapshot.nvml.message), "" if snapshot.nvml.status == "ok" else "yellow")


def format_gib(used: int | None, total: int | None) -> str | None:
    """Format used and total memory as "41.2 / 140.4 GiB". Returns None if both are unknown."""
    if used is None and total is None:
        return None
    used_text = NOT_KNOWN if used is None else f"{used / GIB:.1f}"
    if total is None:
        return f"{used_text} GiB"
    total_text = f"{total / GIB:.1f}"
    return f"{used_text.rjust(len(total_text))} / {total_text} GiB"


def _format_title(snapshot: Snapshot) -> str:
    nvml = snapshot.nvml
    facts = [snapshot.host, format_clock_time(snapshot.time)]
    if nvml.driver_version:
        facts.append(f"driver {nvml.driver_version}")
    if nvml.cuda_version:
        facts.append(f"CUDA {nvml.cuda_version}")
    return " · ".join(facts)


def _render_devices(
    snapshot: Snapshot, numbers: Mapping[str, str], console: Console, options: ConsoleOptions
) -> RenderResult:
    """Yield the table of devices: a row for each GPU with its remarks below it, and a row for the CPU.

    `numbers` are the displayed numbers of the GPUs by UUID.
    """
    head, *rows = console.render_lines(
        create_table(_create_columns(snapshot, numbers), options.max_width), options, pad=False
    )
    yield from (*head, Segment.line())
    for gpu, row in zip(snapshot.gpus, rows, strict=False):  # the last row is that of the CPU
        yield from Segment.apply_style(row, console.get_style("dim" if gpu.lost or gpu.asleep else "none"))
        yield Segment.line()
        for remark in list_remarks(gpu):
            text = Text(remark.text, "yellow" if remark.alarming else "dim")
            yield Padding(text, (0, 0, 0, len("GPU") + GAP), expand=False)
    yield from rows[-1]
    yield Segment.line()


def _create_columns(snapshot: Snapshot, numbers: Mapping[str, str]) -> list[Column]:
    """Return the columns of the table of devices, the least important ones last. The CPU is the last row.

    `numbers` are the displayed numbers of the GPUs by UUID.
    """
    gpus, cpu = snapshot.gpus, snapshot.cpu
    orders_differ = any(gpu.cuda_index not in (None, gpu.nvml_index) for gpu in gpus)
    loads = [*(gpu.utilization_percent for gpu in gpus), cpu.load_percent]
    temperatures = [*(gpu.temperature_c for gpu in gpus), cpu.temperature_c]
    names = [_format_name(gpu) for gpu in gpus]
    cpu_name = f"{counted(len(cpu.core_load_percent), 'core')}, {cpu.name}"
    if gpus:
        cpu_name = shorten(cpu_name, max(MAX_CPU_NAME, *map(len, names)), placeholder=" …")
    used_and_total = [(gpu.memory_used_bytes, gpu.memory_total_bytes) for gpu in gpus]
    used_and_total.append((cpu.memory_used_bytes, cpu.memory_total_bytes))
    return [
        Column("GPU", [*(numbers[gpu.uuid] for gpu in gpus), "CPU"]),
        Column("Name", [*names, cpu_name], is_name=True),
        Column(
            "Use",
            [_format_fixed_width(load, "%", 3) for load in loads],
            [_compute_fraction(load, 100) for load in loads],
        ),
        Column(
            "Memory",
            [format_gib(used, total) for used, total in used_and_total],
            [_compute_fraction(used, total) for used, total in used_and_total],
        ),
        Column("Temp", [_format_fixed_width(value, "°C", 2) for value in temperatures]),
        Column("Power", [*(_format_power(gpu) for gpu in gpus), ""]),
        Column("NVML", [*(str(gpu.nvml_index) for gpu in gpus), ""] if orders_differ else []),
        Column("Clock", [*(_format_fixed_width(gpu.sm_clock_mhz, "MHz", 4) for gpu in gpus), ""]),
        Column("Fan", [*(_format_fixed_width(gpu.fan_percent, "%", 3) for gpu in gpus), ""]),
    ]


def _format_name(gpu: Gpu) -> str:
    if gpu.mig is not None:
        return f"MIG {gpu.mig.profile}".rstrip()
    return gpu.name.removeprefix("NVIDIA ")


def _format_fixed_width(value: float | None, unit: str, digits: int) -> str | None:
    """Format a rounded value in `unit`, padded to `digits` digits so that the table does not move when redrawn."""
    return None if value is None else with_unit(f"{value:{digits}.0f}", unit)


def _format_power(gpu: Gpu) -> str | None:
    """Format the power of a GPU with its limit, or return None if the power is unknown."""
    if gpu.power_w is None:
        return None
    if gpu.power_limit_w is None:
        return f"{gpu.power_w:3.0f} W"
    limit = f"{gpu.power_limit_w:.0f}"
    return f"{gpu.power_w:{max(3, len(limit))}.0f} / {limit} W"


def _compute_fraction(used: float | None, total: float | None) -> float | None:
    """Return the used fraction of a total for a bar, or None if it is unknown."""
    return None if used is None or not total else used / total


def _render_processes(snapshot: Snapshot, numbers: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    """Yield an empty line and a table with a row for each process on each GPU, or nothing if there are none.

    `numbers` are the displayed numbers of the GPUs by UUID, and `width` is that of the terminal in characters.
    """
    rows = [(numbers[gpu.uuid], process) for gpu in snapshot.gpus for process in gpu.processes or ()]
    if not rows:
        return
    columns = (
        Column("GPU", [number for number, _ in rows]),
        Column("PID", [str(process.pid) for _, process in rows]),
        Column("User", [process.user for _, process in rows], is_name=True),
        Column("Type", [_PROCESS_TYPES[process.kind] for _, process in rows], is_name=True),
        Column("Memory", [_format_size(process.memory_used_bytes) for _, process in rows]),
        Column("SM", [_format_percent(process.sm_percent) for _, process in rows]),
        Column("CPU", [_format_percent(process.cpu_percent) for _, process in rows]),
        Column("Host memory", [_format_size(process.host_memory_bytes) for _, process in rows]),
        Column("Time", [_format_running_time(process, snapshot.time) for _, process in rows]),
        Column("Command", [process.command or process.name for _, process in rows], is_name=True),
    )
    yield Text()
    yield create_table(columns, width)
    if snapshot.foreign_pids:
        yield Text(
            "This is a container: the PIDs are the host's, and nothing else is known about these processes.", "dim"
        )


def _format_running_time(process: GpuProcess, now: float) -> str | None:
    """Format how long a process has been running at the time `now`, or return None if that is unknown."""
    return None if process.started is None else duration(now - process.started)


def _format_size(count: int | None) -> str | None:
    return None if count is None else size(count)


def _format_percent(value: float | None) -> str | None:
    return None if value is None else f"{value:3.0f}%"
