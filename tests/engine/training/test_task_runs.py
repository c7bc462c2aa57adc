"""Short runs of every task, with every strength of augmentation and under all strategies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.contract.events import Failed, Validation
from engine.contract.job import Job
from tests.gpu.jobs import TASKS
from tests.support.consent import permit_model_file
from tests.support.worker_group import WorkerGroup

Make = Callable[..., Job]
Start = Callable[..., WorkerGroup]
KINDS = [
    "classification", "multi-label classification", "semantic segmentation", "road extraction", "edge detection",
    "object detection, SSDlite", "object detection, Faster R-CNN", "instance segmentation", "point cloud segmentation",
    "a task of one's own",
]  # fmt: skip
DAILY = {("object detection, SSDlite", "strong")}
ON_ENCODER: dict[str, Any] = {"model": "hed_encoder", "encoder": "resnet18"}


def write_task_dataset(kind: str, folder: Path) -> dict[str, Any]:
    """Write a dataset for the task `kind` into `folder`, and return the job fields of a run on it."""
    make, fields = TASKS[kind]
    consent = {"model_file_sha256": permit_model_file(Path(fields["model"]))} if fields.get("task") == "custom" else {}
    return fields | consent | {"dataset": str(make(folder / "data", {"train": 12, "val": 4}))}


@pytest.mark.parametrize(
    ("kind", "strength"),
    [
        pytest.param(kind, strength, marks=() if (kind, strength) in DAILY else pytest.mark.long)
        for kind in KINDS
        for strength in ("none", "light", "medium", "strong")
    ],
)
def test_augmentations_work_for_every_task(job: Make, start: Start, tmp_path: Path, kind: str, strength: str) -> None:
    given = write_task_dataset(kind, tmp_path) | {
        "epochs": 2,
        "batch_size": 4,
        "precision": "fp32",
        "augmentation": strength,
    }
    group = start(job(**given), every_step=True).completed(300)
    assert len(group.losses) >= 2
    assert all(0 <= loss < 1e4 for loss in group.losses)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "strategy", "cpus", "fields"),
    [
        *(("multi-label classification", strategy, 2, {}) for strategy in ("ddp", "fsdp", "pipeline")),
        ("multi-label classification", "pipeline", 2, {"mixup": 0.2}),
        *(("semantic segmentation", strategy, 2, {}) for strategy in ("ddp", "fsdp", "model_parallel", "pipeline")),
        ("semantic segmentation", "hsdp", 4, {}),
        *(("road extraction", strategy, 2, {}) for strategy in ("ddp", "fsdp", "model_parallel", "pipeline")),
        ("road extraction", "ddp", 2, {"model": "hourglass_mtl"}),
        *(("edge detection", strategy, 2, {}) for strategy in ("ddp", "fsdp", "model_parallel", "pipeline")),
        ("edge detection", "fsdp", 2, {"model": "bdcn"}),
        *(("edge detection", strategy, 2, ON_ENCODER) for strategy in ("fsdp", "pipeline")),
        *(("instance segmentation", strategy, 2, {}) for strategy in ("ddp", "fsdp")),
        *(("point cloud segmentation", strategy, 2, {}) for strategy in ("ddp", "fsdp")),
        ("point cloud segmentation", "hsdp", 4, {}),
        ("point cloud segmentation", "ddp", 7, {}),  # some ranks have no sample of a batch of six
        ("a task of one's own", "ddp", 2, {}),
    ],
)
def test_tasks_train_equally_under_every_strategy(
    job: Make, start: Start, tmp_path: Path, *, kind: str, strategy: str, cpus: int, fields: dict[str, Any]
) -> None:
    given = write_task_dataset(kind, tmp_path) | {"batch_size": 6, "augmentation": "none", "seed": 3} | fields
    single = start(job(**given), every_step=True).completed(300)
    options = {"microbatches": 2} if strategy == "pipeline" else {}
    group = start(job(cpus, strategy=strategy, **given, **options), every_step=True).completed(300)
    # The first loss precedes any change of weights. With most strategies, BatchNorm sees only parts of the batch.
    assert group.losses[0] == pytest.approx(single.losses[0], rel=1e-5 if strategy == "model_parallel" else 0.2)
    (validation,), (expected,) = group.of(Validation), single.of(Validation)
    assert (validation.images, set(validation.measures)) == (expected.images, set(expected.measures))


def test_fixed_size_transformer_refuses_growing_images(job: Make, start: Start) -> None:
    group = start(job(model="vit_b_16", image_size=64, progressive_from=32))
    group.finish()
    (failed,) = group.of(Failed)
    assert "built for a fixed image size" in failed.cause
    assert "convolutional" in failed.cause
