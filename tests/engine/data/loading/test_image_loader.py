"""Batches: whole, the same for any number of threads and workers, and never in a deadlock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import engine.data.loading.decode_pool
from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import open_splits
from engine.data.loading.base_loader import Batch
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import Purpose, RandomStreams
from engine.data.transforms.crops import draw_crops
from engine.data.transforms.device_transforms import crop
from tests.support.images import noise
from tests.support.loaders import loader_of

Tree = Callable[..., Path]
Make = Callable[..., BatchLoader]


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes loaders that are closed at the end."""
    made: list[BatchLoader] = []

    def build(images: ImageSet, **given: Any) -> BatchLoader:
        channels = given.pop("channels", 3)
        sampler = GlobalBatchSampler(
            len(images),
            given.pop("batch", 4),
            given.pop("rank", 0),
            given.pop("world", 1),
            RandomStreams(5),
            given.pop("shuffle", True),
        )
        settings: dict[str, Any] = {
            "channels": channels,
            "augmentation": "none",
            "mean": (0.5,) * channels,
            "std": (0.25,) * channels,
        }
        made.append(loader_of(images, sampler, **settings | given))
        return made[-1]

    yield build
    for loader in made:
        loader.close()


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    """Eleven images for training."""
    for place in range(14):
        noise(tmp_path / "set" / "ab"[place % 2] / f"{place}.png", place, size=(30, 20 + place))
    return open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0).train


def together(batches: Iterator[Batch]) -> tuple[torch.Tensor, torch.Tensor]:
    found = list(batches)
    return torch.cat([batch.inputs for batch in found]), torch.cat([batch.targets for batch in found])


def test_that_batches_hold_the_images_in_the_order_of_the_sampler(make: Make, images: ImageSet) -> None:
    loader = make(images)
    inputs, targets = together(loader.epoch(3))
    loader.sampler.set_epoch(3)
    order = [int(index) for share in loader.sampler for index in share.indices]
    plain = torch.stack([images.load(index, 16, 3) for index in order])
    torch.testing.assert_close(inputs, (plain.float() / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-5)
    assert targets.tolist() == images.targets[order].tolist()
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("augmentation", ["none", "light"])
@pytest.mark.parametrize("keeping", [True, False])
def test_that_neither_threads_nor_workers_nor_keeping_change_an_image(
    make: Make, images: ImageSet, augmentation: str, keeping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [together(make(images, augmentation=augmentation, threads=0).epoch(epoch)) for epoch in range(3)]
    if not keeping:
        monkeypatch.setattr(engine.data.loading.decode_pool, "open_store", lambda *_, **__: None)
    ranks = [make(images, augmentation=augmentation, threads=3, rank=rank, world=3) for rank in range(3)]
    for epoch, (inputs, targets) in enumerate(alone):
        shares = [list(loader.epoch(epoch)) for loader in ranks]
        steps = [batch for step in zip(*shares, strict=True) for batch in step]
        assert torch.equal(torch.cat([batch.inputs for batch in steps]), inputs)
        assert torch.equal(torch.cat([batch.targets for batch in steps]), targets)


def test_that_augmentation_changes_with_the_epoch_alone(make: Make, images: ImageSet) -> None:
    loader = make(images, augmentation="light", shuffle=False, batch=20)
    first, again, later = (together(loader.epoch(epoch))[0] for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_that_digits_are_cropped_but_never_mirrored(make: Make, digits: Path) -> None:
    split = open_splits(str(digits), val_fraction=0.2, seed=0).train
    assert not split.mirror
    ramp = torch.arange(20, dtype=torch.uint8).expand(50, 1, 20, 20)
    for mirror in (False, True):
        crops = torch.from_numpy(draw_crops(4, RandomStreams(1), 2, np.arange(50), mirror=mirror))
        cropped = crop(ramp, crops, 16).numpy().astype(int)
        steps = np.diff(cropped, axis=-1)
        assert set(np.unique(steps)) == ({1, -1} if mirror else {1})
        assert set(np.unique(cropped.min(axis=(1, 2, 3)))) == set(range(5))
    inputs, _ = together(make(split, channels=1, augmentation="light", size=28).epoch(0))
    assert tuple(inputs.shape) == (40, 1, 28, 28)


def test_that_draws_are_even_and_independent_of_each_other() -> None:
    samples = np.arange(20_000)
    draws = np.concatenate(
        [RandomStreams(seed).draw(Purpose.CROP, epoch, samples, 2) for seed in (0, 1) for epoch in (0, 1)]
    )
    assert abs(np.corrcoef(draws) - np.eye(8)).max() < 0.03
    assert abs(np.histogram(draws, 10, (0, 1))[0] / draws.size - 0.1).max() < 0.005
    some, whole = (RandomStreams(3).draw(Purpose.CROP, 4, which, 2) for which in (samples[70:80], samples))
    assert np.array_equal(some, whole[:, 70:80])


@pytest.fixture
def damaged(tree: Tree) -> Path:
    """Six images of each split, two of each damaged."""
    root = tree("train/a", "train/b", "val/a", "val/b", count=3)
    for split in ("train", "val"):
        (root / split / "a/1.png").write_bytes(b"")
        (root / split / "b/2.png").write_bytes((root / split / "b/2.png").read_bytes()[:40])
    return root


@pytest.mark.parametrize("keeping", [True, False])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_that_unreadable_images_are_replaced_in_training_and_told_once(
    make: Make, damaged: Path, threads: int, keeping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not keeping:
        monkeypatch.setattr(engine.data.loading.decode_pool, "open_store", lambda *_, **__: None)
    told: list[str] = []
    split = open_splits(str(damaged), val_fraction=0.2, seed=0).train
    loader = make(split, threads=threads, batch=6, on_unreadable=lambda path, reason: told.append(path))
    for epoch in range(3):
        [batch] = loader.epoch(epoch)
        loader.sampler.set_epoch(epoch)
        [share] = loader.sampler
        # a: 0 1 2, b: 3 4 5; the next readable one after a/1 is a/2, after b/2 it is a/0
        wanted = [{1: 2, 5: 0}.get(index, index) for index in share.indices.tolist()]
        assert batch.targets.tolist() == split.targets[wanted].tolist()
        plain = torch.stack([split.load(index, 16, 3) for index in wanted])
        torch.testing.assert_close(batch.inputs, (plain.float() / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-5)
        assert batch.global_size == 6
    assert sorted(told) == ["train/a/1.png", "train/b/2.png"]


def test_that_unreadable_images_are_left_out_of_validation(make: Make, damaged: Path) -> None:
    told: list[str] = []
    split = open_splits(str(damaged), val_fraction=0.2, seed=0).val
    loader = make(split, shuffle=False, batch=4, on_unreadable=lambda path, reason: told.append(path))
    assert [batch.targets.tolist() for batch in loader.epoch(0)] == [[0, 0, 1], [1]]
    assert sorted(told) == ["val/a/1.png", "val/b/2.png"]


@pytest.mark.parametrize("threads", [0, 2])
def test_that_a_split_without_a_readable_image_is_an_error_in_the_consumer(
    make: Make, tree: Tree, threads: int
) -> None:
    root = tree("train/a", "train/b", "val/a", "val/b")
    for path in root.glob("train/*/*.png"):
        path.write_bytes(b"no")
    split = open_splits(str(root), val_fraction=0.2, seed=0).train
    with pytest.raises(DatasetError, match="No image of the training set can be read"):
        list(make(split, threads=threads, on_unreadable=lambda path, reason: None).epoch(0))


def threads_now() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("batches", "decode"))]


def test_that_a_consumer_that_stops_early_leaves_nothing_running(make: Make, images: ImageSet) -> None:
    loader = make(images, batch=1)
    batches = loader.epoch(0)
    next(batches)
    assert "batches" in threads_now()
    batches.close()  # type: ignore[attr-defined]
    assert "batches" not in threads_now()
    assert len(list(loader.epoch(1))) == len(images)


def test_that_closing_ends_all_threads_even_with_an_epoch_under_way(make: Make, images: ImageSet) -> None:
    loader = make(images, batch=1, threads=3)
    batches = loader.epoch(0)
    next(batches)
    loader.close()
    assert threads_now() == []
    assert list(batches) == []


def test_that_a_fault_in_the_reading_thread_reaches_the_consumer(make: Make, images: ImageSet) -> None:
    def raise_it(index: int, size: int, channels: int) -> torch.Tensor:
        raise ZeroDivisionError("a bug")

    images.load = raise_it  # type: ignore[method-assign]
    loader = make(images)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        list(loader.epoch(0))
    assert "batches" not in threads_now()


def test_that_later_epochs_read_no_files(make: Make, images: ImageSet, tmp_path: Path) -> None:
    loader = make(images, batch=len(images))
    first = together(loader.epoch(0))[0]
    for path in (tmp_path / "set").rglob("*.png"):
        path.unlink()
    assert torch.equal(together(loader.epoch(0))[0], first)


def test_that_shares_may_be_empty(make: Make, images: ImageSet) -> None:
    loader = make(images, shuffle=False, batch=len(images) - 1, rank=1, world=2, augmentation="light")
    batches = list(loader.epoch(0))
    assert tuple(batches[-1].inputs.shape) == (0, 3, 16, 16)
    assert batches[-1].global_size == 1


def test_that_the_wait_is_told(make: Make, images: ImageSet) -> None:
    assert all(0 < batch.wait_s < 60 for batch in make(images).epoch(0))
