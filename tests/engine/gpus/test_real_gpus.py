"""GPU sampler on real NVIDIA GPUs, if there are any, compared with nvidia-smi."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from engine.contract.devices import Gpu, GpuPair, Snapshot
from tests.engine.gpus.conftest import ROOT, Start

MIB = 1024**2
ABSENT = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", "")

pytestmark = pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA driver here (nvidia-smi)")

HOLD = (
    "import torch\n"
    "held = torch.ones(256 << 20, dtype=torch.uint8, device='cuda')\n"
    "torch.cuda.synchronize()\n"
    "print('held', flush=True)\n"
    "input()"
)
"""Program that keeps 256 MiB allocated on the first GPU until its standard input is closed."""

CONSTANT: dict[str, Callable[[Gpu], Any]] = {
    "name": lambda gpu: gpu.name,
    "pci.bus_id": lambda gpu: gpu.pci_bus_id,
    "clocks.max.sm": lambda gpu: gpu.sm_clock_max_mhz,
    "clocks.max.memory": lambda gpu: gpu.memory_clock_max_mhz,
    "enforced.power.limit": lambda gpu: gpu.power_limit_w,
    "pcie.link.gen.max": lambda gpu: gpu.pcie.max_generation,
    "pcie.link.width.max": lambda gpu: gpu.pcie.max_width,
    "ecc.mode.current": lambda gpu: gpu.ecc.enabled,
    "ecc.errors.corrected.aggregate.total": lambda gpu: gpu.ecc.total_corrected,
    "ecc.errors.uncorrected.aggregate.total": lambda gpu: gpu.ecc.total_uncorrected,
    "persistence_mode": lambda gpu: gpu.persistence,
    "mig.mode.current": lambda gpu: gpu.mig_enabled,
}
"""Constant quantities, by their names in nvidia-smi (`nvidia-smi --help-query-gpu`)."""

CHANGING: dict[str, tuple[Callable[[Gpu], float | None], float]] = {
    "memory.used": (lambda gpu: _mib(gpu.memory_used_bytes), 64),
    "memory.total": (lambda gpu: _mib(gpu.memory_total_bytes), 2),
    "memory.reserved": (lambda gpu: _mib(gpu.memory_reserved_bytes), 2),
    "temperature.gpu": (lambda gpu: gpu.temperature_c, 3),
    "temperature.memory": (lambda gpu: gpu.memory_temperature_c, 3),
    "power.draw": (lambda gpu: gpu.power_w, 25),
    "fan.speed": (lambda gpu: gpu.fan_percent, 5),
}
"""Quantities that change on an idle GPU: a function that returns the value, and the tolerance between two readings."""


def run(*command: str) -> list[list[str]]:
    """Run a command and return its output lines, split at commas. Skip the test if the command fails."""
    return [[cell.strip() for cell in line.split(",")] for line in text(*command).splitlines()]


def text(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        pytest.skip(f"no NVIDIA GPU that answers here: {(done.stderr or done.stdout).strip()[:200]}")
    return done.stdout


def query(*fields: str) -> dict[str, dict[str, str]]:
    """Return nvidia-smi's values of `fields` by GPU UUID."""
    rows = run("nvidia-smi", f"--query-gpu=uuid,{','.join(fields)}", "--format=csv,noheader,nounits")
    return {uuid: dict(zip(fields, cells, strict=True)) for uuid, *cells in rows}


def take_snapshot(start_sampler: Start) -> Snapshot:
    """Return the second snapshot of a sampler, which contains the quantities that need two readings."""
    sampler = start_sampler("--interval", "0.5")
    snapshot = sampler.wait_for(lambda s: bool(s.gpus), 60)
    assert snapshot.nvml.status == "ok"
    return sampler.next()


def _mib(value: int | None) -> float | None:
    return None if value is None else value / MIB


def is_equal(text_value: str, value: Any) -> bool:
    if text_value in ABSENT or value is None:
        return text_value in ABSENT and value is None
    if isinstance(value, bool):
        return text_value == ("Enabled" if value else "Disabled")
    return float(text_value) == pytest.approx(value, abs=1) if isinstance(value, int | float) else text_value == value


@pytest.mark.parametrize("field", CONSTANT)
def test_constant_values_match_nvidia_smi(start_sampler: Start, field: str) -> None:
    printed = query(field)
    gpus = [gpu for gpu in take_snapshot(start_sampler).gpus if gpu.mig is None]
    assert {gpu.uuid for gpu in gpus} == set(printed)
    for gpu in gpus:
        assert is_equal(printed[gpu.uuid][field], CONSTANT[field](gpu)), (printed[gpu.uuid], CONSTANT[field](gpu))


@pytest.mark.parametrize("field", CHANGING)
def test_changing_values_are_close_to_nvidia_smi(start_sampler: Start, field: str) -> None:
    read, slack = CHANGING[field]
    gpus = take_snapshot(start_sampler).gpus
    printed = query(field)
    for gpu in (gpu for gpu in gpus if gpu.mig is None):
        text_value, value = printed[gpu.uuid][field], read(gpu)
        assert (value is None) == (text_value in ABSENT), (text_value, value)
        assert value is None or value == pytest.approx(float(text_value), abs=slack)


def test_versions_match_nvidia_smi(start_sampler: Start) -> None:
    nvml = take_snapshot(start_sampler).nvml
    (driver,) = {printed["driver_version"] for printed in query("driver_version").values()}
    assert nvml.driver_version == driver
    header = re.search(r"CUDA (?:UMD )?Version: *(\d+\.\d+)", text("nvidia-smi"))
    assert header is not None
    assert nvml.cuda_version == header[1]


def test_process_memory_matches_nvidia_smi(start_sampler: Start) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"held\n":
            pytest.skip("torch finds no GPU here")
        listed = {
            (uuid, int(pid)): used
            for uuid, pid, used in run(
                "nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"
            )
        }
        snapshot = take_snapshot(start_sampler)
        holder.kill()
    found_processes = {
        (gpu.uuid, p.pid): p for gpu in snapshot.gpus for p in gpu.processes or () if p.kind != "graphics"
    }
    assert set(listed) <= set(found_processes)
    for key, used in listed.items():
        assert used in ABSENT or _mib(found_processes[key].memory_used_bytes) == pytest.approx(float(used), abs=2)
    if not snapshot.foreign_pids:
        expected = {uuid: process for (uuid, pid), process in found_processes.items() if pid == holder.pid}
        assert len(expected) == 1
        assert all("torch.ones" in process.command and process.kind == "compute" for process in expected.values())


def test_topology_matches_nvidia_smi(start_sampler: Start) -> None:
    lines = [line.split("\t") for line in re.sub(r"\x1b\[\d*m", "", text("nvidia-smi", "topo", "-m")).splitlines()]
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in lines if row[0].strip().startswith("GPU")}
    topology = take_snapshot(start_sampler).topology
    assert topology is not None
    pairs = {(pair.one, pair.other): pair for pair in topology.pairs}
    assert set(pairs) == set(combinations(range(len(rows)), 2))
    for (one, other), pair in pairs.items():
        assert written(pair) == rows[f"GPU{one}"][other]
    header = [cell.strip() for cell in lines[0][1:]]
    for place in topology.affinities:
        listed = dict(zip(header, rows[f"GPU{place.index}"], strict=False))
        assert place.cores == listed["CPU Affinity"]


def written(pair: GpuPair) -> str:
    return f"NV{pair.nvlinks}" if pair.nvlinks else pair.path or ""


def test_cuda_order_matches_torch(start_sampler: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    code = (
        "import torch\n"
        "for i in range(torch.cuda.device_count()): print(f'{i},GPU-{torch.cuda.get_device_properties(i).uuid}')"
    )
    counted = run(sys.executable, "-c", code)
    gpus = start_sampler("--once").next(60).gpus
    assert {gpu.uuid: str(gpu.cuda_index) for gpu in gpus if gpu.cuda_index is not None} == {
        uuid: index for index, uuid in counted
    }
