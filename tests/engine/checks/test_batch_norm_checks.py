"""Batches with a single value per BatchNorm channel. Such jobs must be rejected before they start."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.checks.job_checks import problems
from engine.contract.catalogue import ANY_SIZE, load_catalogue
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.models.meta_device import build_on_meta, find_largest_single_value_size
from engine.tasks.registry import TASKS

CATALOGUE = load_catalogue()
A, B = "GPU-a", "GPU-b"


def find_problems(tmp_path: Path, **fields: Any) -> list[Problem]:
    job = Job.from_fields(**({"dataset": str(tmp_path), "devices": ("cpu",), "strategy": "single"} | fields))
    return [each for each in errors(problems(job, CATALOGUE)) if "BatchNorm" in each.message]


DEEPLAB = {"task": "segmentation", "model": "deeplabv3plus"}
SYNCED = DEEPLAB | {"batch_size": 2, "devices": (A, B), "strategy": "ddp", "sync_batchnorm": True}
RESNET = {"task": "classification", "model": "resnet18"}
TENSOR_PARALLEL = {"task": "classification", "model": "mobilenet_v3_small", "image_size": 32, "batch_size": 2}


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        (DEEPLAB | {"batch_size": 1}, "Set 2 or more"),
        (RESNET | {"batch_size": 1, "image_size": 32}, "a larger image size"),
        (RESNET | {"batch_size": 1, "image_size": 64, "progressive_from": 32}, "Set 2 or more"),
        (DEEPLAB | {"batch_size": 4, "accumulation": 4}, "Gradient accumulation"),
        (DEEPLAB | {"batch_size": 2, "devices": ("cpu",) * 2, "strategy": "ddp"}, "Set 4 or more"),
        (DEEPLAB | {"batch_size": 3, "devices": (A, B), "strategy": "dp"}, "fewer devices"),
        (DEEPLAB | {"batch_size": 2, "devices": (A, B), "strategy": "fsdp"}, "Set 4 or more"),
        (SYNCED | {"freeze_epochs": 1}, "Set 4 or more"),
        (TENSOR_PARALLEL | {"devices": ("cpu",) * 4, "strategy": "ddp_tp", "replicas": 2}, "Set 4 or more"),
    ],
)
def test_a_lone_image_is_refused_at_the_batch_size(tmp_path: Path, fields: dict[str, Any], remedy: str) -> None:
    (problem,) = find_problems(tmp_path, **fields)
    assert problem.field == "batch_size"
    assert remedy in problem.remedy
    needed = int(problem.remedy.split()[1])
    assert [len(find_problems(tmp_path, **fields | {"batch_size": size})) for size in (needed - 1, needed)] == [1, 0]


@pytest.mark.parametrize(
    "fields",
    [
        DEEPLAB | {"batch_size": 2},
        DEEPLAB | {"batch_size": 1, "freeze_batchnorm": True},
        DEEPLAB | {"batch_size": 4, "devices": ("cpu",) * 2, "strategy": "ddp"},
        SYNCED,
        RESNET | {"batch_size": 1, "image_size": 64},
        {"task": "segmentation", "model": "pspnet", "batch_size": 1},
        {"task": "classification", "model": "vit_b_16", "batch_size": 1},
    ],
)
def test_enough_values_are_no_problem(tmp_path: Path, fields: dict[str, Any]) -> None:
    assert find_problems(tmp_path, **fields) == []


@pytest.mark.parametrize(
    ("task", "name", "size"),
    [
        ("segmentation", "deeplabv3plus", 256),
        ("segmentation", "pan", 256),
        ("segmentation", "pspnet", 64),
        ("segmentation", "unet", 64),
        ("classification", "resnet18", 32),
        ("classification", "resnet18", 33),
        ("classification", "timm:skresnet18", 224),
    ],
)
def test_the_catalogue_agrees_with_pytorch(task: str, name: str, size: int) -> None:
    info = TASKS[task].describe_model(name)
    model = (
        TASKS[task]
        .build_model(Job.from_fields(task=task, model=name, pretrained=False), info.classes, info.channels)
        .train()
    )
    entry = CATALOGUE.model(name)
    assert entry is not None
    is_refused = entry.lone_batch_norm == ANY_SIZE or size <= entry.lone_batch_norm
    expected = pytest.raises(ValueError, match="more than 1 value per channel") if is_refused else nullcontext()
    with expected:
        model(torch.zeros(1, info.channels, size, size))


@pytest.mark.parametrize(("name", "expected"), [("resnet18", 32), ("vit_b_16", 0), ("vgg16", 0)])
def test_lone_size_is_that_of_the_last_stride(name: str, expected: int) -> None:
    task = TASKS["classification"]
    info = task.describe_model(name)
    model = build_on_meta(lambda: task.build_model(Job.from_fields(model=name), info.classes, info.channels))
    assert (
        find_largest_single_value_size(model, info.channels, smallest=info.min_image_size, usual=info.image_size)
        == expected
    )
