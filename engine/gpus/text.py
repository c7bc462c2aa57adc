"""A snapshot as a table for terminals."""

from __future__ import annotations

from engine.contract.devices import Cpu, Gpu, GpuProcess, Snapshot

HEADINGS = ("Device", "Name", "Use", "Memory", "Temp", "Power", "CUDA", "UUID")
UNKNOWN = "-"
MIB = 1024**2
GIB = 1024**3


def format_snapshot(snapshot: Snapshot) -> str:
    """Device by device, aligned; then who uses the GPUs; then why something is missing. No newline at the end."""
    rows = [HEADINGS, *(_gpu_row(gpu) for gpu in snapshot.gpus), _cpu_row(snapshot.cpu)]
    lines = _aligned(rows)
    lines += [line for gpu in snapshot.gpus for line in _process_lines(gpu)]
    if snapshot.nvml.message:
        lines += ["", snapshot.nvml.message]
    return "\n".join(lines)


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    return (
        f"GPU {gpu.nvml_index}",
        f"{gpu.name} (lost: last values)" if gpu.lost else gpu.name,
        _number(gpu.utilization_percent, "%"),
        _memory(gpu.memory_used_bytes, gpu.memory_total_bytes),
        _number(gpu.temperature_c, "°C"),
        _power(gpu.power_w, gpu.power_limit_w),
        UNKNOWN if gpu.cuda_index is None else str(gpu.cuda_index),
        gpu.uuid,
    )


def _cpu_row(cpu: Cpu) -> tuple[str, ...]:
    return (
        "CPU",
        f"{cpu.name} ({len(cpu.core_load_percent)} cores)",
        _number(cpu.load_percent, "%"),
        _memory(cpu.memory_used_bytes, cpu.memory_total_bytes),
        _number(cpu.temperature_c, "°C"),
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
    )


def _process_lines(gpu: Gpu) -> list[str]:
    if not gpu.processes:
        return []
    return ["", f"GPU {gpu.nvml_index} is used by", *(f"  {_process(process)}" for process in gpu.processes)]


def _process(process: GpuProcess) -> str:
    memory = f"{process.memory_used_bytes / MIB:,.0f} MiB" if process.memory_used_bytes is not None else None
    parts = [f"process {process.pid}", process.name, process.user, memory]
    return ", ".join(part for part in parts if part)


def _number(value: float | None, unit: str) -> str:
    return UNKNOWN if value is None else f"{value:.0f} {unit}"


def _memory(used: int | None, total: int | None) -> str:
    if total is None:
        return UNKNOWN if used is None else f"{used / GIB:.1f} GiB"
    return f"{UNKNOWN if used is None else format(used / GIB, '.1f')} / {total / GIB:.1f} GiB"


def _power(power_w: float | None, limit_w: float | None) -> str:
    if power_w is None:
        return UNKNOWN
    return f"{power_w:.0f} W" if limit_w is None else f"{power_w:.0f} / {limit_w:.0f} W"


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    right = {2, 3, 4, 5, 6}
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
