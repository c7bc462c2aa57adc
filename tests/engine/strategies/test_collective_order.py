"""Collectives that all ranks must call in the same order, even if they are on different machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.contract.events import Chosen, Failed, Validation
from engine.contract.job import Job
from tests.support import unequal_machines
from tests.support.worker_group import WorkerGroup

Make = Callable[..., Job]
Start = Callable[..., WorkerGroup]


@pytest.mark.parametrize(
    ("strategy", "fields"),
    [
        pytest.param("ddp", {"balance": "speed", "memory_format": "auto"}, marks=pytest.mark.long),
        ("fsdp", {"ema_decay": 0.9, "balance": "speed"}),
        ("pipeline", {"microbatches": 2, "predictions": 13}),
        pytest.param("zero1", {"ema_decay": 0.9, "on_not_finite": "skip"}, marks=pytest.mark.long),
    ],
)
def test_different_machines_issue_the_same_collectives(
    job: Make, start: Start, strategy: str, fields: dict[str, Any]
) -> None:
    given = {"patience": 1, "epochs": 3, "checkpoint_steps": 4} | fields
    group = start(
        job(cpus=2, strategy=strategy, **given), prepare="tests.support.unequal_machines:simulate_unequal_machines"
    )
    group.completed()
    first, second = (unequal_machines.read_collectives(group.folder, rank) for rank in range(2))
    assert first == second
    assert len(first) > 10


def test_ranks_choose_the_precision_of_the_weakest_gpu(job: Make, start: Start) -> None:
    group = start(
        job(cpus=2, strategy="ddp"), prepare="tests.support.unequal_machines:simulate_unequal_machines"
    ).completed()
    (chosen,) = [event for event in group.of(Chosen) if event.field == "precision"]
    assert chosen.choice == "fp32"


def test_best_epoch_and_early_stopping_follow_rank_0(job: Make, start: Start) -> None:
    """Let rank 1 compute metrics that improve with every validation."""
    group = start(
        job(cpus=2, strategy="fsdp", patience=2, epochs=6),
        prepare="tests.support.unequal_machines:simulate_unequal_machines",
    ).completed()
    best = min(group.of(Validation, 0), key=lambda event: (-event.measures["top1"], event.measures["loss"]))
    assert group.done.best_epoch == best.epoch


def test_tensor_parallel_refuses_dropout_on_unequal_gpus(job: Make, start: Start) -> None:
    fields = {"model": "mobilenet_v3_small", "image_size": 32, "batch_size": 36}
    group = start(
        job(cpus=2, strategy="tp", **fields), prepare="tests.support.unequal_machines:simulate_unequal_machines"
    )
    assert group.finish() == [1, 1]
    assert all("GPU type 0, GPU type 1" in failed.cause for failed in group.of(Failed))
