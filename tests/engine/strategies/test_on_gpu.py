"""Training on real NVIDIA GPUs, compared with the CPU within the precision of the data type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from engine.contract.job import Job

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU on this machine")

MODEL = """
from torch import nn

def build_model(num_classes):
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, num_classes))
"""
TOLERANCE = {"fp32": 2e-2, "bf16": 5e-2, "fp16": 2e-2}
"""Relative tolerance of losses. They differ because sums are in another order.

TF32 and fp16 have 11 significant bits, bf16 has 8.
"""


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("strategy", ["single", "ddp", "fsdp"])
def test_gpu_trains_like_cpu(
    job: Callable[..., Job],
    start: Callable[..., Any],
    model_file: Callable[[str], dict[str, str]],
    strategy: str,
    precision: str,
) -> None:
    fields = {**model_file(MODEL), "epochs": 2}
    on_cpu = start(job(**fields), every_step=True).completed()
    gpu = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    on_gpu = start(job(devices=(gpu,), strategy=strategy, precision=precision, **fields), every_step=True).completed()
    np.testing.assert_allclose(on_gpu.losses, on_cpu.losses, rtol=TOLERANCE[precision], atol=1e-3)
    states = [g.checkpoint()["model"] for g in (on_cpu, on_gpu)]
    assert list(states[0]) == list(states[1])


@pytest.mark.parametrize("fields", [{"memory_format": "channels_last"}, {"compile": "on"}], ids=["last", "compiled"])
@pytest.mark.parametrize("strategy", ["single", "ddp"])
def test_gpu_options_train_equally(
    job: Callable[..., Job],
    start: Callable[..., Any],
    model_file: Callable[[str], dict[str, str]],
    strategy: str,
    fields: dict[str, Any],
) -> None:
    given = {**model_file(MODEL), "epochs": 2, "precision": "fp32"}
    on_cpu = start(job(**given), every_step=True).completed()
    gpu = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    on_gpu = start(job(devices=(gpu,), strategy=strategy, **given, **fields), every_step=True)
    assert not any(on_gpu.finish(300)), on_gpu.logs()
    np.testing.assert_allclose(on_gpu.losses, on_cpu.losses, rtol=TOLERANCE["fp32"], atol=1e-3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are fewer than two CUDA GPUs on this machine")
@pytest.mark.parametrize("strategy", ["dp", "ddp", "fsdp", "model_parallel", "pipeline"])
def test_two_gpus_train_like_two_cpus(
    job: Callable[..., Job], start: Callable[..., Any], model_file: Callable[[str], dict[str, str]], strategy: str
) -> None:
    fields = {**model_file(MODEL), "epochs": 2, "precision": "fp32"}
    gpus = tuple(f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(2))
    reference = "ddp" if strategy == "dp" else strategy
    on_cpu = start(job(cpus=2, strategy=reference, **fields), every_step=True).completed()
    on_gpus = start(job(devices=gpus, strategy=strategy, **fields), every_step=True).completed()
    np.testing.assert_allclose(on_gpus.losses, on_cpu.losses, rtol=TOLERANCE["fp32"], atol=1e-3)
