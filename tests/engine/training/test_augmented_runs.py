"""Training with augmentation: every task with every strength, and exact resumption."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.contract.events import Failed, Predicted, StepMetrics
from engine.contract.job import Job
from tests.gpu.jobs import TASKS
from tests.support.consent import agreed
from tests.support.same_states import differences
from tests.support.worker_group import WorkerGroup

Make = Callable[..., Job]
Start = Callable[..., WorkerGroup]
KINDS = [
    "classification", "multi-label classification", "semantic segmentation", "road extraction", "edge detection",
    "object detection, SSDlite", "object detection, Faster R-CNN", "instance segmentation", "point cloud segmentation",
    "a task of one's own",
]  # fmt: skip
DAILY = {("object detection, SSDlite", "strong")}


@pytest.mark.parametrize(
    ("kind", "strength"),
    [
        pytest.param(kind, strength, marks=() if (kind, strength) in DAILY else pytest.mark.long)
        for kind in KINDS
        for strength in ("none", "light", "medium", "strong")
    ],
)
def test_augmentations_work_for_every_task(job: Make, start: Start, tmp_path: Path, kind: str, strength: str) -> None:
    make, fields = TASKS[kind]
    folder = make(tmp_path / "data", {"train": 8, "val": 4})
    given = fields | {
        "dataset": str(folder),
        "epochs": 2,
        "batch_size": 4,
        "precision": "fp32",
        "augmentation": strength,
    }
    if kind == "a task of one's own":
        given["model_file_sha256"] = agreed(Path(str(given["model"])))
    group = start(job(**given), every_step=True).completed(300)
    assert len(group.losses) >= 2
    assert all(0 <= loss < 1e4 for loss in group.losses)


@pytest.mark.parametrize(("strategy", "cpus"), [("single", 1), pytest.param("ddp", 2, marks=pytest.mark.long)])
def test_resume_is_exact_with_growing_images(job: Make, start: Start, strategy: str, cpus: int) -> None:
    given: dict[str, Any] = {
        "strategy": strategy, "cpus": cpus, "epochs": 3, "augmentation": "strong", "image_size": 64, "progressive_from": 32,
        "val_crop": 0.8, "checkpoint_steps": 1, "keep_checkpoints": 100, "mixup": 0.2,
    }  # fmt: skip
    uninterrupted = start(job(**given), every_step=True).completed(300)
    assert uninterrupted.of(Predicted)
    step = len(uninterrupted.losses) // 2
    (point,) = (uninterrupted.folder / "checkpoints").glob(f"epoch-*-step-{step}.pt")
    rest = start(job(**given, resume_from=str(point)), every_step=True).completed(300)
    assert next(metrics.step for metrics in rest.of(StepMetrics)) == step + 1
    assert rest.losses == uninterrupted.losses[step:]
    actual, expected = (
        torch.load(run.folder / "checkpoints" / "last.pt", weights_only=True) for run in (rest, uninterrupted)
    )
    assert not differences(actual["model"], expected["model"])


def test_fixed_size_transformer_refuses_growing_images(job: Make, start: Start) -> None:
    group = start(job(model="vit_b_16", image_size=64, progressive_from=32))
    group.finish()
    (failed,) = group.of(Failed)
    assert "built for a fixed image size" in failed.cause
    assert "convolutional" in failed.cause
