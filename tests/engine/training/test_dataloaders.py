"""Image sizes of training batches under multi-scale training, and the division of batches among ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from engine.contract.events import Chosen
from engine.contract.images import SizeLimits
from engine.contract.job import Job
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.loading.base_loader import Batch
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.strategies.base import ResolvedJob
from engine.strategies.ddp import DataParallelProcesses
from engine.tasks.registry import TASKS
from engine.training import dataloaders
from engine.training.dataloaders import DataLoaders, create_image_loader, get_size_limits
from tests.engine.training.task_jobs import task_job
from tests.support.outlined import make_outlined
from tests.support.specs import make_worker_spec

SIDE = 96


def batches_of(
    job: Any, epoch: int = 2, *, rank: int = 0, world: int = 1, start: int = 0, shuffle: bool = True, **settings: Any
) -> list[Batch]:
    task = TASKS[job.task]
    splits = task.open_splits(job)
    streams = RandomStreams(job.training.seed)
    sampler = GlobalBatchSampler(len(splits.train), 2, rank, world, streams, shuffle=shuffle)
    settings |= {"threads": 0, "device": torch.device("cpu"), "on_unreadable": print}
    loader = create_image_loader(job, task, splits, splits.train, sampler, **settings)
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
    limits = get_size_limits(Job.from_fields(task=task, model=model), TASKS[task], nn.Identity())
    assert limits == SizeLimits(smallest, 32)


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_get_their_shares_of_each_batch(images: Path, rank: int) -> None:
    job = task_job(images, 2, task="classification", model="mnist_cnn", image_size=16, batch_size=8, strategy="ddp")
    job = job.with_fields(oversample=True, loader_workers=2, augmentation="strong", memory_format="channels_last")
    task, spec = TASKS[job.task], make_worker_spec(job, rank=rank)
    strategy, splits = DataParallelProcesses(spec), task.open_splits(job)
    strategy.resolved_job, strategy.model, strategy.shares = ResolvedJob(job), nn.Identity(), (0.75, 0.25)
    events: list[object] = []
    reporter: Any = SimpleNamespace(send=events.append)
    loaders = DataLoaders(spec, strategy, task, splits, reporter, streams=RandomStreams(job.training.seed))
    train, val = loaders.create_train_loader(), loaders.create_val_loader()
    try:
        sizes = {len(batch.targets) for batch in train.epoch(1) if batch is not None}
        first, second = ([batch for batch in val.epoch(epoch) if batch is not None] for epoch in (1, 2))
    finally:
        train.close()
        val.close()
    assert (train.steps, train.images, train.threads, val.steps, val.images) == (9, 72, 2, 3, 21)
    rank_rows = (slice(0, 6), slice(6, 8))[rank]
    assert all(map(torch.equal, (batch.inputs for batch in first), (batch.inputs for batch in second)))
    assert all(batch.inputs.is_contiguous(memory_format=torch.channels_last) for batch in first)
    validated = [batch.targets.tolist() for batch in first]
    assert (sizes, validated[:2]) == (
        {6 - 4 * rank},
        [splits.val.targets[start : start + 8][rank_rows].tolist() for start in (0, 8)],
    )
    assert [type(event) for event in events] == ([Chosen] if rank == 0 else [])


class Numbers(SampleSet):
    """Ten samples, each of which is its index."""

    def __len__(self) -> int:
        return 10

    def path(self, index: int) -> str:
        return str(index)

    def load(self, index: int, epoch: int) -> Sample:
        return torch.tensor([float(index)]), torch.tensor(0)


@pytest.mark.parametrize(("workers", "is_worthwhile"), [(2, True), (2, False), (1, True)])
def test_processes_load_the_samples_of_both_splits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workers: int, is_worthwhile: bool
) -> None:
    measured: list[tuple[bool, int]] = []
    loaded: list[str] = []

    def should_use_processes(samples: SampleSet, loads: int) -> bool:
        measured.append((samples is splits.train, loads))
        return is_worthwhile

    def load(split: str, index: int, epoch: int) -> Sample:
        loaded.append(split)
        return Numbers().load(index, epoch)

    processes = SimpleNamespace(load=load, close=lambda: loaded.append("closed"))
    monkeypatch.setattr(dataloaders, "should_use_processes", should_use_processes)
    monkeypatch.setattr(dataloaders, "SampleProcesses", lambda *_: processes)
    job = task_job(tmp_path, 2, task="classification", strategy="ddp", batch_size=4, epochs=3, loader_workers=workers)
    spec = make_worker_spec(job, rank=1)
    strategy, splits = DataParallelProcesses(spec), SimpleNamespace(train=Numbers(), val=Numbers())
    strategy.resolved_job, strategy.model = ResolvedJob(job), nn.Identity()
    loaders = DataLoaders(spec, strategy, TASKS[job.task], splits, SimpleNamespace(), streams=RandomStreams(0))  # type: ignore[arg-type]
    loaders.start_processes()
    assert measured == [(True, 15)] * (workers > 1)
    for loader, steps in ((loaders.create_train_loader(), 2), (loaders.create_val_loader(), 3)):
        assert len(list(loader.epoch(1))) == steps
        loader.close()
    loaders.close()
    expected = {"train", "val", "closed"} if is_worthwhile and workers > 1 else set()
    assert set(loaded) == expected
