"""The sampler in front of real NVIDIA GPUs, where there are any."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from .conftest import ROOT, Start

MIB = 1024**2


def run(*command: str) -> list[list[str]]:
    """Lines of a command's output, each split at commas; skips the test where the command fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        pytest.skip(f"no NVIDIA GPU that answers here: {(done.stderr or done.stdout).strip()[:200]}")
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA driver here (nvidia-smi)")
def test_that_real_gpus_are_told_as_nvidia_smi_tells_them(start_sampler: Start) -> None:
    told = run("nvidia-smi", "--query-gpu=uuid,name,memory.total", "--format=csv,noheader,nounits")
    snapshot = start_sampler("--once").next(60)
    assert snapshot.nvml.status == "ok"
    assert [[gpu.uuid, gpu.name] for gpu in snapshot.gpus] == [row[:2] for row in told]
    for gpu, (_, _, total_mib) in zip(snapshot.gpus, told, strict=True):
        if gpu.memory_total_bytes is not None:
            assert abs(gpu.memory_total_bytes / MIB - float(total_mib)) < 2


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA driver here (nvidia-smi)")
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
