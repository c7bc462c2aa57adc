"""Who uses the GPUs, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import RenderableType
from rich.text import Text

from engine.cli.gpus.layout import Column, table
from engine.contract.devices import GpuProcess, Snapshot
from engine.system.format import duration, size

_KINDS = {"compute": "C", "graphics": "G", "both": "C+G"}
"""As nvidia-smi writes them."""


def processes(snapshot: Snapshot, numbers: Mapping[str, str], width: int) -> Iterator[RenderableType]:
    """A row for each process on each GPU, headed by an empty line; nothing where there is none."""
    rows = [(numbers[gpu.uuid], process) for gpu in snapshot.gpus for process in gpu.processes or ()]
    if not rows:
        return
    columns = (
        Column("GPU", [number for number, _ in rows]),
        Column("PID", [str(process.pid) for _, process in rows]),
        Column("User", [process.user for _, process in rows], name=True),
        Column("Type", [_KINDS[process.kind] for _, process in rows], name=True),
        Column("Memory", [_size(process.memory_used_bytes) for _, process in rows]),
        Column("SM", [_percent(process.sm_percent) for _, process in rows]),
        Column("CPU", [_percent(process.cpu_percent) for _, process in rows]),
        Column("Host memory", [_size(process.host_memory_bytes) for _, process in rows]),
        Column("Time", [_running(process, snapshot.time) for _, process in rows]),
        Column("Command", [process.command or process.name for _, process in rows], name=True),
    )
    yield Text()
    yield table(columns, width)
    if snapshot.foreign_pids:
        yield Text(
            "This is a container: the pids are the host's, and nothing else is known about these processes.", "dim"
        )


def _running(process: GpuProcess, now: float) -> str | None:
    return None if process.started is None else duration(now - process.started)


def _size(count: int | None) -> str | None:
    return None if count is None else size(count)


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:3.0f} %"
