"""The sampler in front of real NVIDIA GPUs, where there are any, beside nvidia-smi's own words."""

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
"""Holds 256 MiB of the first GPU until its input ends."""

STEADY: dict[str, Callable[[Gpu], Any]] = {
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
"""What does not change by itself, by nvidia-smi's names (`nvidia-smi --help-query-gpu`)."""

MOVING: dict[str, tuple[Callable[[Gpu], float | None], float]] = {
    "memory.used": (lambda gpu: _mib(gpu.memory_used_bytes), 64),
    "memory.total": (lambda gpu: _mib(gpu.memory_total_bytes), 2),
    "memory.reserved": (lambda gpu: _mib(gpu.memory_reserved_bytes), 2),
    "temperature.gpu": (lambda gpu: gpu.temperature_c, 3),
    "temperature.memory": (lambda gpu: gpu.memory_temperature_c, 3),
    "power.draw": (lambda gpu: gpu.power_w, 25),
    "fan.speed": (lambda gpu: gpu.fan_percent, 5),
}
"""What moves between the two readings of a GPU at rest, and how far it may."""


def run(*command: str) -> list[list[str]]:
    """Lines of a command's output, each split at commas; skips the test where the command fails."""
    return [[cell.strip() for cell in line.split(",")] for line in text(*command).splitlines()]


def text(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        pytest.skip(f"no NVIDIA GPU that answers here: {(done.stderr or done.stdout).strip()[:200]}")
    return done.stdout


def query(*fields: str) -> dict[str, dict[str, str]]:
    """nvidia-smi's words for each of `fields`, by the GPU's UUID."""
    rows = run("nvidia-smi", f"--query-gpu=uuid,{','.join(fields)}", "--format=csv,noheader,nounits")
    return {uuid: dict(zip(fields, cells, strict=True)) for uuid, *cells in rows}


def now(start_sampler: Start) -> Snapshot:
    """One whole snapshot, with what takes two readings."""
    sampler = start_sampler("--interval", "0.5")
    snapshot = sampler.until(lambda s: bool(s.gpus), 60)
    assert snapshot.nvml.status == "ok"
    return sampler.next()


def _mib(value: int | None) -> float | None:
    return None if value is None else value / MIB


def same(word: str, value: Any) -> bool:
    if word in ABSENT or value is None:
        return word in ABSENT and value is None
    if isinstance(value, bool):
        return word == ("Enabled" if value else "Disabled")
    return float(word) == pytest.approx(value, abs=1) if isinstance(value, int | float) else word == value


@pytest.mark.parametrize("field", STEADY)
def test_that_what_is_steady_is_told_as_nvidia_smi_tells_it(start_sampler: Start, field: str) -> None:
    words = query(field)
    gpus = [gpu for gpu in now(start_sampler).gpus if gpu.mig is None]
    assert {gpu.uuid for gpu in gpus} == set(words)
    for gpu in gpus:
        assert same(words[gpu.uuid][field], STEADY[field](gpu)), (words[gpu.uuid], STEADY[field](gpu))


@pytest.mark.parametrize("field", MOVING)
def test_that_what_moves_is_told_nearly_as_nvidia_smi_tells_it(start_sampler: Start, field: str) -> None:
    read, slack = MOVING[field]
    gpus = now(start_sampler).gpus
    words = query(field)
    for gpu in (gpu for gpu in gpus if gpu.mig is None):
        word, value = words[gpu.uuid][field], read(gpu)
        assert (value is None) == (word in ABSENT), (word, value)
        assert value is None or value == pytest.approx(float(word), abs=slack)


def test_that_versions_are_those_of_nvidia_smi(start_sampler: Start) -> None:
    nvml = now(start_sampler).nvml
    (driver,) = {words["driver_version"] for words in query("driver_version").values()}
    assert nvml.driver_version == driver
    shown = re.search(r"CUDA (?:UMD )?Version: *(\d+\.\d+)", text("nvidia-smi"))
    assert shown is not None
    assert nvml.cuda_version == shown[1]


def test_that_a_process_is_told_with_the_memory_that_nvidia_smi_tells(start_sampler: Start) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        if holder.stdout.readline() != b"held\n":
            pytest.skip("torch finds no GPU here")
        told = {
            (uuid, int(pid)): used
            for uuid, pid, used in run(
                "nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits"
            )
        }
        snapshot = now(start_sampler)
        holder.kill()
    seen = {(gpu.uuid, p.pid): p for gpu in snapshot.gpus for p in gpu.processes or () if p.kind != "graphics"}
    assert set(told) <= set(seen)
    for key, used in told.items():
        assert used in ABSENT or _mib(seen[key].memory_used_bytes) == pytest.approx(float(used), abs=2)
    if not snapshot.foreign_pids:
        ours = {uuid: process for (uuid, pid), process in seen.items() if pid == holder.pid}
        assert len(ours) == 1
        assert all("torch.ones" in process.command and process.kind == "compute" for process in ours.values())


def test_that_the_topology_is_the_matrix_of_nvidia_smi(start_sampler: Start) -> None:
    lines = [line.split("\t") for line in re.sub(r"\x1b\[\d*m", "", text("nvidia-smi", "topo", "-m")).splitlines()]
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in lines if row[0].strip().startswith("GPU")}
    topology = now(start_sampler).topology
    assert topology is not None
    pairs = {(pair.one, pair.other): pair for pair in topology.pairs}
    assert set(pairs) == set(combinations(range(len(rows)), 2))
    for (one, other), pair in pairs.items():
        assert written(pair) == rows[f"GPU{one}"][other]
    header = [cell.strip() for cell in lines[0][1:]]
    for place in topology.affinities:
        told = dict(zip(header, rows[f"GPU{place.index}"], strict=False))
        assert place.cores == told["CPU Affinity"]


def written(pair: GpuPair) -> str:
    return f"NV{pair.nvlinks}" if pair.nvlinks else pair.path or ""


def test_that_cudas_order_is_the_one_that_torch_sees(start_sampler: Start, monkeypatch: pytest.MonkeyPatch) -> None:
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
