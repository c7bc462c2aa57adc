"""Estimates of memory and of the least that a step can take."""

from __future__ import annotations

from typing import Any

import pytest

from engine.advisor.advice.estimates import UNMEASURED, Costs, at_best_s, correction, estimate
from engine.advisor.advice.measured import Activations, Footprint, Link
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.parallel.layout import bubble

GIB = 1 << 30
KNOWN = Footprint(
    parameter_bytes=GIB,
    trained_bytes=GIB,
    last_bytes=0,
    buffer_bytes=0,
    block_bytes=GIB // 16,
    base_bytes=0,
    limits=(8 * GIB,),
    image_bytes=0,
    ahead=3,
    plain=Activations(0, GIB // 32, 0),
    checkpointed=Activations(0, GIB // 128, 0),
    train_images=1000,
    val_images=100,
    settled_precision="fp32",
    halved=0.5,
)
GPUS = tuple(f"GPU-{number}" for number in range(4))


def job(strategy: str, devices: tuple[str, ...] = GPUS, **changes: Any) -> Job:
    return Job(strategy=strategy, devices=devices, batch_size=32, optimizer="adamw", **changes)


def gib(of: Job) -> float:
    entry = load_catalogue().strategy(of.strategy)
    assert entry is not None
    found = estimate(of, entry, KNOWN, UNMEASURED)
    assert found is not None
    return found / GIB


def test_that_each_strategy_divides_what_it_divides() -> None:
    assert gib(job("single", GPUS[:1])) == pytest.approx(4 + 1)  # weights, gradients, two states; 32 images
    assert gib(job("ddp")) == pytest.approx(4 + 1 / 4)
    assert gib(job("zero1")) == pytest.approx(2 + 2 / 4 + 1 / 4)
    assert gib(job("fsdp")) == pytest.approx(1 + 3 / 16 + 1 / 4)
    assert gib(job("pipeline", pipeline_schedule="1f1b")) < gib(job("pipeline", pipeline_schedule="gpipe")) < 2
    assert gib(job("single", GPUS[:1], accumulation=4)) == pytest.approx(4 + 1 / 4)
    assert gib(job("single", GPUS[:1], activation_checkpointing=True)) == pytest.approx(4 + 1 / 4)
    assert gib(job("fsdp", cpu_offload=True)) < 0.5
    assert gib(job("single", GPUS[:1], precision="bf16")) == pytest.approx(4 + 1 / 2)


def test_that_a_trial_on_one_device_corrects_the_activations_and_then_the_rest() -> None:
    entry = load_catalogue().strategy("single")
    assert entry is not None
    of = job("single", GPUS[:1])
    assert correction(5 * GIB + GIB // 2, of, entry, KNOWN) == (1.5, 0)
    small = job("single", GPUS[:1], accumulation=16)
    assert correction(5 * GIB, small, entry, KNOWN) == (1.0, pytest.approx(GIB * (1 - 1 / 16)))
    high = correction(9 * GIB, of, entry, KNOWN)
    assert high.extra_bytes > 0
    assert estimate(of, entry, KNOWN, high) == 9 * GIB


def test_that_bubbles_follow_their_formulas_and_sending_bounds_a_step() -> None:
    catalogue = load_catalogue()
    pipeline, ddp, single_file = (catalogue.strategy(name) for name in ("pipeline", "ddp", "model_parallel"))
    assert pipeline is not None
    assert ddp is not None
    assert single_file is not None
    assert bubble(job("pipeline", microbatches=8), pipeline) == pytest.approx(3 / 8)
    assert bubble(job("pipeline", microbatches=8, pipeline_schedule="interleaved_1f1b"), pipeline) == pytest.approx(
        3 / 16
    )
    assert bubble(job("pipeline", microbatches=8, pipeline_schedule="zb1p"), pipeline) == 0
    costs = Costs(0.4, 0.4, 0.0, Link(GIB, 0.0, 4), GIB, GIB)
    assert at_best_s(job("pipeline", microbatches=8), pipeline, costs) == pytest.approx(0.1 * 11 / 8)
    assert at_best_s(job("ddp"), ddp, costs) == pytest.approx(1.0)
    assert at_best_s(job("model_parallel"), single_file, costs) == 0.4
