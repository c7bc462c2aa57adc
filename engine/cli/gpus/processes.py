"""Who uses the GPUs, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping

from engine.cli.gpus.layout import Column, Line, aligned, shortened, table_width
from engine.contract.devices import GpuProcess, Snapshot
from engine.system.format import duration, size

SHORTEST_COMMAND = 16
_KINDS = {"compute": "C", "graphics": "G", "both": "C+G"}
"""As nvidia-smi writes them."""


def process_lines(snapshot: Snapshot, numbers: Mapping[str, str], width: int) -> list[Line]:
    """A row for each process on each GPU, headed by an empty line; nothing where there is none."""
    rows = [(numbers[gpu.uuid], process) for gpu in snapshot.gpus for process in gpu.processes or ()]
    if not rows:
        return []
    columns = [
        Column("GPU", [number for number, _ in rows]),
        Column("PID", [str(process.pid) for _, process in rows]),
        Column("User", [process.user for _, process in rows], left=True),
        Column("Type", [_KINDS[process.kind] for _, process in rows], left=True),
        Column("Memory", [_size(process.memory_used_bytes) for _, process in rows]),
        Column("SM", [_percent(process.sm_percent) for _, process in rows]),
        Column("CPU", [_percent(process.cpu_percent) for _, process in rows]),
        Column("Host memory", [_size(process.host_memory_bytes) for _, process in rows]),
        Column("Time", [_running(process, snapshot.time) for _, process in rows]),
    ]
    room = max(SHORTEST_COMMAND, width - table_width(columns) - 2)
    commands = [_command(process) for _, process in rows]
    columns.append(Column("Command", [command and shortened(command, room) for command in commands], left=True))
    head, *lines = aligned(columns)
    table = [Line(""), Line(head, "head"), *map(Line, lines)]
    if snapshot.foreign_pids:
        table.append(
            Line("This is a container: the pids are the host's, and no more is known of these processes.", "dim")
        )
    return table


def _command(process: GpuProcess) -> str | None:
    return process.command or process.name


def _running(process: GpuProcess, now: float) -> str | None:
    return None if process.started is None else duration(now - process.started)


def _size(count: int | None) -> str | None:
    return None if count is None else size(count)


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:3.0f} %"
