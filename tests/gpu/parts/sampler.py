"""Comparison of the GPU sampler (engine.gpus) with nvidia-smi and torch."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec
import torch

from engine.contract.devices import Gpu, Snapshot
from tests.benchmarks.beside_others import (
    TOLERANCES,
    WARM_S,
    DmonWatcher,
    SamplerWatcher,
    alternate_load,
    compare_values,
)
from tests.benchmarks.nvml_cost import AIM_PERCENT
from tests.gpu.checks import CheckContext, Skipped, run_checks
from tests.support.nvml_stub import find_obstacle

MIB = 1 << 20
HELD = 1 << 30
HOLD = """
import sys, torch
held = torch.ones({bytes}, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print(torch.cuda.memory_reserved(), flush=True)
input()
"""
WATCHED_S = 24.0


def read_snapshots(*arguments: str) -> Iterator[Snapshot]:
    """Start a GPU sampler with these command-line arguments, and yield its snapshots.

    The sampler is killed when the generator is closed.
    """
    with subprocess.Popen([sys.executable, "-m", "engine.gpus", *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield msgspec.json.decode(line, type=Snapshot)
        finally:
            process.kill()


def read_current_snapshot(context: CheckContext) -> tuple[Snapshot, Gpu]:
    """Return a snapshot from the sampler, and the entry of the tested GPU in it."""
    with contextlib.closing(read_snapshots("--once")) as found:
        snapshot = next(found)
    rows = {gpu.uuid: gpu for gpu in snapshot.gpus}
    if context.gpu not in rows:
        raise RuntimeError(f"the sampler doesn't report {context.gpu}: {snapshot.nvml.message or ', '.join(rows)}")
    return snapshot, rows[context.gpu]


def identity(context: CheckContext) -> None:
    if context.rehearsing:
        with contextlib.closing(read_snapshots("--once")) as found:
            status = next(found).nvml
        context.claim("missing NVML is reported", status.status != "ok" and bool(status.message), status.message)
        return
    properties = torch.cuda.get_device_properties(0)
    snapshot, gpu = read_current_snapshot(context)
    context.claim(
        "NVML answers", snapshot.nvml.status == "ok", f"{snapshot.nvml.status} {snapshot.nvml.message}".strip()
    )
    context.claim("same name as torch", gpu.name == properties.name, f"{gpu.name}; torch {properties.name}")
    context.claim("same CUDA index as torch", gpu.cuda_index == 0, str(gpu.cuda_index))
    assert gpu.memory_total_bytes is not None
    off = abs(gpu.memory_total_bytes - (gpu.memory_reserved_bytes or 0) - properties.total_memory) / MIB
    context.measure(
        "difference of total memory from torch", off, "MiB", at_most=1024, text="the driver reserves some memory"
    )
    known = {name for name, value in msgspec.structs.asdict(gpu).items() if value is not None}
    context.claim("utilization, memory, power, temperature and clocks are available", known >= {
        "utilization_percent", "memory_used_bytes", "power_w", "temperature_c", "sm_clock_mhz", "processes",
    }, f"missing: {', '.join(sorted(set(msgspec.structs.asdict(gpu)) - known))}")  # fmt: skip


def compare_memory(context: CheckContext) -> None:
    """Compare the memory that the sampler reports before and while a process allocates 1 GiB."""
    context.require_gpu("no GPU memory to allocate")
    _, before = read_current_snapshot(context)
    command = [sys.executable, "-c", HOLD.format(bytes=HELD)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        reserved = int(holder.stdout.readline())
        snapshot, during = read_current_snapshot(context)
        holder.kill()
    row = next((process for process in during.processes or () if process.pid == holder.pid), None)
    assert during.memory_used_bytes is not None
    assert before.memory_used_bytes is not None
    grown = during.memory_used_bytes - before.memory_used_bytes
    context.measure("used memory minus torch's allocation (the CUDA context)", (grown - reserved) / MIB, "MiB",
                  at_least=0, at_most=1024)  # fmt: skip
    if snapshot.foreign_pids or row is None:
        observed = f"{len(during.processes or ())} processes, PIDs of the host: {snapshot.foreign_pids}"
        context.claim(
            "the process is found by its PID, or its PID belongs to another namespace", snapshot.foreign_pids, observed
        )
        return
    context.claim(
        "the process is found by its PID, or its PID belongs to another namespace", True, f"{row.name} {row.kind}"
    )
    if row.memory_used_bytes is not None:
        context.measure("difference of the process's memory from the increase on the GPU", abs(row.memory_used_bytes - grown) / MIB, "MiB",
                      at_most=64)  # fmt: skip


def compare_load(context: CheckContext) -> None:
    """Compare the sampler with `nvidia-smi dmon`, while load and idle phases of four seconds alternate."""
    context.require_gpu("there is nothing to compare")
    if shutil.which("nvidia-smi") is None:
        raise Skipped("nvidia-smi not found")
    footplate = SamplerWatcher("Footplate's sampler", sys.executable, "-m", "engine.gpus", "--interval", "1")
    theirs = DmonWatcher("nvidia-smi dmon", "nvidia-smi", "dmon", "-s", "pucm", "-d", "1")
    with alternate_load(True), contextlib.ExitStack() as ending:
        for watcher in (footplate, theirs):
            watcher.start()
            watcher.reset_cpu_time()
            ending.callback(watcher.end)
        time.sleep(WARM_S + WATCHED_S)
    found = compare_values(footplate, theirs)
    for name, tolerance in TOLERANCES.items():
        values = found.get(name, [])
        if not values:
            context.claim(f"{name}: reported by both", False, "no pair of simultaneous values")
            continue
        context.measure(f"{name}: median difference from nvidia-smi", statistics.median(values), "", at_most=tolerance,
                      text=f"{max(values):.1f} at most, {len(values)} pairs")  # fmt: skip
    used = [value for _, numbers in footplate.outputs for (_, name), value in numbers.items() if name == "use %"]
    context.measure("utilization under load", max(used, default=0.0), "%", at_least=95)
    context.measure("utilization while idle", min(used, default=100.0), "%", at_most=5)


def measure_cost(context: CheckContext) -> None:
    """Measure the CPU time of each NVML call and of the sampler. A rehearsal uses the NVML stub."""
    if context.rehearsing and (reason := find_obstacle()):
        raise Skipped(reason)
    command = [
        sys.executable,
        "tests/benchmarks/nvml_cost.py",
        "--json",
        "--seconds",
        "2" if context.rehearsing else "10",
    ]
    found = json.loads(subprocess.check_output(command, timeout=100))
    measured = found["sampler"]
    context.measure("CPU use of the sampler's processes", measured["cpu_percent"], "%")
    context.measure("CPU use without NVML calls", measured["over_nvml_percent"], "%", at_most=AIM_PERCENT)
    context.measure("fraction of the time in NVML calls", measured["nvml_percent"], "%")
    context.measure("memory of the sampler", measured["resident_bytes"] / MIB, "MiB")
    for call in found["calls"][:5]:
        context.measure(
            f"{call['function']} (median)", call["median_us"], "µs", text=f"{call['longest_us']:.0f} at most"
        )


def record_profile(context: CheckContext) -> None:
    """Record NVML's values of this machine's GPUs as a profile for the NVML stub, and add the profile to the report."""
    context.require_gpu("there is nothing to record")
    recorded = subprocess.check_output([sys.executable, "-m", "tests.support.record_nvml"], text=True, timeout=60)
    context.add_file("nvml.profile", recorded)
    context.measure("values recorded for the NVML stub", len(recorded.splitlines()), "values", text="nvml.profile")


def main() -> None:
    run_checks({
        "identity": (identity, 60),
        "memory": (compare_memory, 60),
        "load and idle": (compare_load, 60),
        "cost of sampling": (measure_cost, 100),
        "profile": (record_profile, 60),
    })  # fmt: skip


if __name__ == "__main__":
    main()
