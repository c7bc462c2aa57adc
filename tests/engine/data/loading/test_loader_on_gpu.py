"""Batches on a real NVIDIA GPU. They must equal those on the CPU bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.data.datasets.images import ImageSet
from engine.data.datasets.open_splits import open_splits
from engine.data.loading import image_loader
from engine.data.loading.base_loader import Batch
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from tests.support import boxed
from tests.support.images import write_noise
from tests.support.loaders import make_loader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU on this machine")


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    for number in range(60):
        split = "train" if number < 56 else "val"
        write_noise(tmp_path / "set" / split / "ab"[number % 2] / f"{number}.png", number, size=(40, 40))
    return open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0).train


@pytest.fixture
def loaders() -> Iterator[list[BatchLoader]]:
    built: list[BatchLoader] = []
    yield built
    for loader in built:
        loader.close()


def loader_on(device: str, images: ImageSet, **given: Any) -> BatchLoader:
    sampler = GlobalBatchSampler(len(images), 4, 0, 1, RandomStreams(5))
    return make_loader(images, sampler, **{"size": 32, "device": torch.device(device)} | given)


def assert_same(some: list[Batch], others: list[Batch]) -> None:
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert torch.equal(one.inputs.cpu(), other.inputs.cpu())
        assert torch.equal(one.targets.cpu(), other.targets.cpu())


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("augmentation", ["none", "light"])
@pytest.mark.parametrize("cache", ["memory", "off"])
@pytest.mark.parametrize("threads", [0, 2])
def test_batches_match_cpu(
    *,
    loaders: list[BatchLoader],
    images: ImageSet,
    memory_format: torch.memory_format,
    augmentation: str,
    cache: str,
    threads: int,
) -> None:
    chosen: list[str] = []
    given = {"augmentation": augmentation, "cache": cache, "memory_format": memory_format}
    plain = loader_on("cpu", images, **given)
    fast = loader_on("cuda:0", images, threads=threads, on_chosen=lambda what, why: chosen.append(what), **given)
    loaders += [plain, fast]
    for epoch in range(3):  # decoded in the first epoch, on the device in later ones
        batches = list(fast.epoch(epoch))
        assert_same(batches, list(plain.epoch(epoch)))
        assert all(batch.inputs.is_contiguous(memory_format=memory_format) for batch in batches)
    assert ("device" in chosen) == (cache == "memory")


@pytest.mark.parametrize("cache", ["memory", "off"])
def test_slots_are_not_overwritten_while_device_is_late(
    loaders: list[BatchLoader], images: ImageSet, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep the device busy, so that the host fills all slots before the device reads the first."""
    monkeypatch.setattr(image_loader, "UPLOAD_FRACTION", 1 << 60)
    plain, fast = loader_on("cpu", images), loader_on("cuda:0", images, cache=cache)
    loaders += [plain, fast]
    for epoch in range(3):
        found = []
        for batch in fast.epoch(epoch):
            found.append(batch)
            torch.cuda._sleep(20_000_000)  # about 10 ms
        assert_same(found, list(plain.epoch(epoch)))


@pytest.mark.parametrize("cache", ["memory", "off"])
def test_host_never_waits_for_device(loaders: list[BatchLoader], images: ImageSet, cache: str) -> None:
    loader = loader_on("cuda:0", images, cache=cache)
    loaders.append(loader)
    assert len(list(loader.epoch(0))) == 14
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert len([*loader.epoch(1), *loader.epoch(2)]) == 28
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_boxes_match_cpu_without_synchronizing(loaders: list[BatchLoader], tmp_path: Path) -> None:
    root = boxed.coco(tmp_path, {"train": dict.fromkeys("abcdefgh", boxed.TWO), "val": {"z": boxed.ONE}})
    boxes = open_splits(str(root), val_fraction=0.2, seed=0, kinds=("boxes",)).train
    plain, fast = loader_on("cpu", boxes, augmentation="light"), loader_on("cuda:0", boxes, augmentation="light")
    loaders += [plain, fast]
    assert_same(list(fast.epoch(0)), list(plain.epoch(0)))
    torch.cuda.set_sync_debug_mode("error")
    try:
        batches = list(fast.epoch(1))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert_same(batches, list(plain.epoch(1)))
