"""Image sizes of training batches under multi-scale training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.contract.images import SizeLimits
from engine.contract.job import Job
from engine.data.loading.base_loader import Batch
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.tasks.registry import TASKS
from engine.training.dataloaders import image_loader, size_limits
from tests.engine.training.task_jobs import task_job
from tests.support.outlined import make_outlined

SIDE = 96


def batches_of(
    job: Any, epoch: int = 2, *, rank: int = 0, world: int = 1, start: int = 0, shuffle: bool = True, **settings: Any
) -> list[Batch]:
    task = TASKS[job.task]
    splits = task.splits(job)
    streams = RandomStreams(job.training.seed)
    sampler = GlobalBatchSampler(len(splits.train), 2, rank, world, streams, shuffle=shuffle)
    settings |= {"threads": 0, "device": torch.device("cpu"), "on_unreadable": print}
    loader = image_loader(job, task, splits, splits.train, sampler, **settings)
    try:
        return list(loader.epoch(epoch, start))
    finally:
        loader.close()


def sides(batches: list[Batch]) -> list[int]:
    return [batch.inputs.shape[-1] for batch in batches]


@pytest.mark.parametrize("task", ["detection", "instance_segmentation"])
def test_multi_scale_sizes_differ_by_step_and_agree_between_ranks(tmp_path: Path, task: str) -> None:
    folder = make_outlined(tmp_path, {"train": 16, "val": 1}, SIDE)
    usual = task_job(folder, task=task, model="fasterrcnn", image_size=SIDE, picture_cache="off", augmentation="light")
    job = usual.with_fields(multi_scale=0.5)
    found = batches_of(job)
    assert set(sides(found)) == {64, 96, 128}
    assert sides(batches_of(job, rank=0, world=2)) == sides(batches_of(job, rank=1, world=2)) == sides(found)
    assert sides(batches_of(job, start=3)) == sides(found)[3:]
    assert sides(batches_of(job, epoch=3)) != sides(found)
    assert sides(batches_of(job, epoch=1))[0] == 128
    assert set(sides(batches_of(job, limits=SizeLimits(96, 48)))) == {96, 144}
    assert set(sides(batches_of(job, shuffle=False))) == {SIDE}
    for batch, one_size in zip(found, batches_of(usual), strict=True):
        scale = batch.inputs.shape[-1] / SIDE
        if task == "detection":
            torch.testing.assert_close(batch.targets[..., :4], one_size.targets[..., :4] * scale)
        else:
            assert batch.targets.shape[-2:] == batch.inputs.shape[-2:]
            ratio = (batch.targets[:, 0] > 0).float().mean() / (one_size.targets[:, 0] > 0).float().mean()
            assert float(ratio) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("task", "model", "smallest"),
    [
        ("detection", "fasterrcnn", 64),
        ("detection", "ssd300_vgg16", 320),
        ("detection", "rfdetr_nano", 64),
        ("segmentation", "unet", 64),
        ("segmentation", "model.py", 32),
    ],
)
def test_varying_sizes_are_large_enough_for_the_model(task: str, model: str, smallest: int) -> None:
    limits = size_limits(Job.from_fields(task=task, model=model), TASKS[task], nn.Identity())
    assert limits == SizeLimits(smallest, 32)
