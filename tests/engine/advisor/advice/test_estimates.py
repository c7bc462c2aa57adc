"""Estimates of memory and step time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.advisor.advice.estimates import UNCALIBRATED, Costs, calibrate, estimate_bytes, estimate_min_step_s
from engine.advisor.advice.trial_files import Activations, Footprint, LinkSpeed
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.parallel.layout import bubble_ratio

GIB = 1 << 30
FOOTPRINT = Footprint(
    parameter_bytes=GIB,
    trained_bytes=GIB,
    last_bytes=0,
    buffer_bytes=0,
    block_bytes=GIB // 16,
    base_bytes=0,
    limits=(9 * GIB, 8 * GIB),
    image_bytes=0,
    prefetched_batches=3,
    activations=Activations(0, GIB // 32, 0),
    checkpointed_activations=Activations(0, GIB // 128, 0),
    train_images=1000,
    val_images=100,
    resolved_precision="fp32",
    bf16_fraction=0.5,
)
GPUS = tuple(f"GPU-{number}" for number in range(4))


def job(strategy: str, devices: tuple[str, ...] = GPUS, **changes: Any) -> Job:
    return Job.from_fields(strategy=strategy, devices=devices, batch_size=32, optimizer="adamw", **changes)


def gib(of: Job, footprint: Footprint = FOOTPRINT) -> float:
    entry = load_catalogue().strategy(of.resolved_strategy)
    assert entry is not None
    found = estimate_bytes(of, entry, footprint, UNCALIBRATED)
    assert found is not None
    return found / GIB


def test_memory_of_each_strategy() -> None:
    assert gib(job("single", GPUS[:1])) == pytest.approx(4 + 1)  # weights, gradients, two states; 32 images
    assert gib(job("ddp")) == pytest.approx(4 + 1 / 4)
    assert gib(job("zero1")) == pytest.approx(2 + 2 / 4 + 1 / 4)
    assert gib(job("fsdp")) == pytest.approx(1 + 3 / 16 + 1 / 4)
    assert gib(job("hsdp", replicas=2)) == pytest.approx(4 / 2 + 3 / 16 + 1 / 4)
    stages = 1.15 / 4  # the largest of four
    assert gib(job("pipeline", pipeline_schedule="gpipe")) == pytest.approx(stages * (4 + 1))
    assert gib(job("pipeline", pipeline_schedule="1f1b")) == pytest.approx(stages * (4 + 4 / 16))
    assert gib(job("ddp_pipeline", pipeline_schedule="gpipe", replicas=2)) == pytest.approx(2 * stages * (4 + 1 / 2))
    assert gib(job("tp")) == pytest.approx(4 / 4 + 3 / 16 + 0.35 + 0.65 / 4)
    assert gib(job("single", GPUS[:1], accumulation=4)) == pytest.approx(4 + 1 / 4)
    assert gib(job("single", GPUS[:1], activation_checkpointing=True)) == pytest.approx(4 + 1 / 4)
    assert gib(job("fsdp", cpu_offload=True)) < 0.5
    assert gib(job("single", GPUS[:1], ema_decay=0.9)) == pytest.approx(5 + 1)
    assert gib(job("single", GPUS[:1], precision="bf16")) == pytest.approx(4 + 1 / 2)


def test_memory_includes_images_and_copies_for_checkpoints() -> None:
    footprint = msgspec.structs.replace(
        FOOTPRINT,
        image_bytes=GIB // 128,
        buffer_bytes=GIB // 8,
        base_bytes=GIB // 4,
        activations=Activations(GIB // 16, GIB // 32, GIB // 64),
    )
    sgd: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9}
    batch = 32 / 128
    other = 1 / 8 + 1 / 4 + 2 * 4 * batch / 4 + 3 * batch
    activations = 1 / 16 + 32 * (1 / 32 + 1 / 64)
    assert gib(job("single", GPUS[:1]).with_fields(**sgd), footprint) == pytest.approx(3 + other + activations)
    assert gib(job("single", ("cpu",)).with_fields(**sgd), footprint) == pytest.approx(3 + 2 + other + activations)
    assert gib(job("single", GPUS[:1]).with_fields(optimizer="sgd", momentum=0.0), footprint) == pytest.approx(
        2 + other + activations
    )
    sharded = 1 / 8 + 1 / 4 + (2 + 3) * batch / 4 + 1 / 16 + 8 * (1 / 32 + 1 / 64)
    assert gib(job("fsdp", ("cpu",) * 4), footprint) == pytest.approx(4 / 4 + 3 / 16 + (1 + 2) + (2 + 2) + sharded)


def test_calibration_scales_activations_first() -> None:
    entry = load_catalogue().strategy("single")
    assert entry is not None
    of = job("single", GPUS[:1])
    assert calibrate(5 * GIB + GIB // 2, of, entry, FOOTPRINT) == (1.5, 0)
    small = job("single", GPUS[:1], accumulation=16)
    assert calibrate(5 * GIB, small, entry, FOOTPRINT) == (1.0, pytest.approx(GIB * (1 - 1 / 16)))
    high = calibrate(9 * GIB, of, entry, FOOTPRINT)
    assert high.extra_bytes > 0
    assert estimate_bytes(of, entry, FOOTPRINT, high) == 9 * GIB


def test_bubble_and_communication_bound_step() -> None:
    catalogue = load_catalogue()
    pipeline, ddp, single_file = (catalogue.strategy(name) for name in ("pipeline", "ddp", "model_parallel"))
    assert pipeline is not None
    assert ddp is not None
    assert single_file is not None
    assert bubble_ratio(job("pipeline", microbatches=8), pipeline) == pytest.approx(3 / 8)
    assert bubble_ratio(
        job("pipeline", microbatches=8, pipeline_schedule="interleaved_1f1b"), pipeline
    ) == pytest.approx(3 / 16)
    assert bubble_ratio(job("pipeline", microbatches=8, pipeline_schedule="zb1p"), pipeline) == 0
    costs = Costs(0.4, 0.4, 0.0, LinkSpeed(GIB, 0.0, 4), GIB, GIB)
    assert estimate_min_step_s(job("pipeline", microbatches=8), pipeline, costs) == pytest.approx(0.1 * 11 / 8)
    assert estimate_min_step_s(job("ddp"), ddp, costs) == pytest.approx(1.0)
    assert estimate_min_step_s(job("model_parallel"), single_file, costs) == 0.4
    slow = Costs(0.4, 0.4, 0.0, LinkSpeed(GIB, 0.5, 4), GIB, GIB)
    for sharded, seconds in ((job("ddp"), 1.0), (job("fsdp"), 1.5), (job("hsdp", replicas=2), 1.0)):
        strategy = catalogue.strategy(sharded.resolved_strategy)
        assert strategy is not None
        assert estimate_min_step_s(sharded, strategy, slow) == pytest.approx(0.5 + seconds)
