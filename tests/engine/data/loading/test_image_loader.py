"""Image batches from any number of threads and ranks, errors, and early stops."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.data.datasets.images import DatasetError, ImageSet
from engine.data.datasets.open_splits import open_splits
from engine.data.loading import decode_pool, image_loader
from engine.data.loading.base_loader import Batch
from engine.data.loading.decode_pool import ImageSource
from engine.data.loading.image_loader import BatchLoader, upload_budget_bytes, upload_images
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.loading.staging import Slot
from engine.data.randomness import RandomStreams
from tests.support.images import write_noise
from tests.support.loaders import make_loader

Tree = Callable[..., Path]
Make = Callable[..., BatchLoader]


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that builds loaders, which are closed after the test."""
    built: list[BatchLoader] = []

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
        built.append(make_loader(images, sampler, **settings | given))
        return built[-1]

    yield build
    for loader in built:
        loader.close()


@pytest.fixture
def images(tmp_path: Path) -> ImageSet:
    """Return a training split of eleven images."""
    for number in range(14):
        write_noise(tmp_path / "set" / "ab"[number % 2] / f"{number}.png", number, size=(30, 20 + number))
    return open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0).train


def join(batches: Iterator[Batch]) -> tuple[torch.Tensor, torch.Tensor]:
    found = list(batches)
    return torch.cat([batch.inputs for batch in found]), torch.cat([batch.targets for batch in found])


def test_batches_follow_sampler_order(make: Make, images: ImageSet) -> None:
    loader = make(images)
    inputs, targets = join(loader.epoch(3))
    loader.sampler.set_epoch(3)
    order = [int(index) for share in loader.sampler for index in share.indices]
    plain = torch.stack([images.load(index, 16, 3) for index in order])
    torch.testing.assert_close(inputs, (plain.float() / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-5)
    assert targets.tolist() == images.targets[order].tolist()
    assert (inputs.dtype, targets.dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("augmentation", ["none", "light"])
@pytest.mark.parametrize("cached", [True, False])
def test_images_do_not_depend_on_threads_ranks_or_cache(
    make: Make, images: ImageSet, augmentation: str, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = [join(make(images, augmentation=augmentation, threads=0).epoch(epoch)) for epoch in range(3)]
    if not cached:
        monkeypatch.setattr(decode_pool, "open_store", lambda *_, **__: None)
    ranks = [make(images, augmentation=augmentation, threads=3, rank=rank, world=3) for rank in range(3)]
    for epoch, (inputs, targets) in enumerate(single):
        shares = [list(loader.epoch(epoch)) for loader in ranks]
        steps = [batch for step in zip(*shares, strict=True) for batch in step]
        assert torch.equal(torch.cat([batch.inputs for batch in steps]), inputs)
        assert torch.equal(torch.cat([batch.targets for batch in steps]), targets)


def test_digits_are_cropped_but_not_mirrored(make: Make, digits: Path) -> None:
    split = open_splits(str(digits), val_fraction=0.2, seed=0).train
    assert not split.mirror
    by_default, mirrored, plain = (
        join(make(split, channels=1, augmentation="light", size=28, mirror=mirror).epoch(0))[0]
        for mirror in (None, True, False)
    )
    assert tuple(by_default.shape) == (40, 1, 28, 28)
    assert torch.equal(by_default, plain)
    is_mirrored = [not torch.equal(one, other) for one, other in zip(mirrored, plain, strict=True)]
    assert 10 < sum(is_mirrored) < 30
    assert torch.equal(mirrored[is_mirrored], plain[is_mirrored].flip(3))


@pytest.fixture
def damaged(tree: Tree) -> Path:
    """Create a dataset with six images in each split, two of which are damaged, and return its folder."""
    root = tree("train/a", "train/b", "val/a", "val/b", count=3)
    for split in ("train", "val"):
        (root / split / "a/1.png").write_bytes(b"")
        (root / split / "b/2.png").write_bytes((root / split / "b/2.png").read_bytes()[:40])
    return root


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_unreadable_training_images_are_replaced(
    make: Make, damaged: Path, threads: int, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not cached:
        monkeypatch.setattr(decode_pool, "open_store", lambda *_, **__: None)
    reported: list[str] = []
    split = open_splits(str(damaged), val_fraction=0.2, seed=0).train
    loader = make(split, threads=threads, batch=6, on_unreadable=lambda path, reason: reported.append(path))
    for epoch in range(3):
        [batch] = loader.epoch(epoch)
        loader.sampler.set_epoch(epoch)
        [share] = loader.sampler
        # a: 0 1 2, b: 3 4 5; the next readable one after a/1 is a/2, after b/2 it is a/0
        expected = [{1: 2, 5: 0}.get(index, index) for index in share.indices.tolist()]
        assert batch.targets.tolist() == split.targets[expected].tolist()
        plain = torch.stack([split.load(index, 16, 3) for index in expected])
        torch.testing.assert_close(batch.inputs, (plain.float() / 255 - 0.5) / 0.25, rtol=1e-5, atol=1e-5)
        assert batch.global_size == 6
    assert sorted(reported) == ["train/a/1.png", "train/b/2.png"]


def test_unreadable_validation_images_are_left_out(make: Make, damaged: Path) -> None:
    reported: list[str] = []
    split = open_splits(str(damaged), val_fraction=0.2, seed=0).val
    loader = make(split, shuffle=False, batch=4, on_unreadable=lambda path, reason: reported.append(path))
    assert [batch.targets.tolist() for batch in loader.epoch(0)] == [[0, 0, 1], [1]]
    assert sorted(reported) == ["val/a/1.png", "val/b/2.png"]


@pytest.mark.parametrize("threads", [0, 2])
def test_split_without_readable_image_raises(make: Make, tree: Tree, threads: int) -> None:
    root = tree("train/a", "train/b", "val/a", "val/b")
    for path in root.glob("train/*/*.png"):
        path.write_bytes(b"no")
    split = open_splits(str(root), val_fraction=0.2, seed=0).train
    with pytest.raises(DatasetError, match="No image of the training set can be read"):
        list(make(split, threads=threads, on_unreadable=lambda path, reason: None).epoch(0))


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("batches", "decode"))]


def test_close_during_epoch_stops_all_threads(make: Make, images: ImageSet) -> None:
    loader = make(images, batch=1, threads=3)
    batches = loader.epoch(0)
    next(batches)
    loader.close()
    assert thread_names() == []
    assert list(batches) == []


def test_batches_have_sides_and_finish_by_epoch_and_index(make: Make, images: ImageSet) -> None:
    received: list[tuple[int, int]] = []

    def finish(
        inputs: torch.Tensor, targets: torch.Tensor, epoch: int, index: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        received.append((epoch, index))
        return inputs, targets + 10

    loader = make(images, shuffle=False, finish=finish, side_of_batch=lambda epoch, index: 8 * epoch + 4 * index)
    batches = list(loader.epoch(2, 1))
    assert [batch.inputs.shape[-1] for batch in batches] == [20, 24]
    assert received == [(2, 1), (2, 2)]
    assert torch.cat([batch.targets for batch in batches]).tolist() == (images.targets[4:] + 10).tolist()


@pytest.fixture
def one_unreadable(tree: Tree) -> ImageSet:
    """Return a training split of ten images. The ninth is unreadable."""
    root = tree("train/a", "train/b", "val/a", "val/b", count=5)
    (root / "train/b/3.png").write_bytes(b"no")
    return open_splits(str(root), val_fraction=0.2, seed=0).train


def test_upload_budget_is_an_eighth_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (800, 1600))
    assert [upload_budget_bytes(torch.device(name)) for name in ("cuda", "cpu")] == [100, 0]


def test_upload_images_leaves_unreadable_ones_blank(one_unreadable: ImageSet) -> None:
    unreadable: list[str] = []
    source = ImageSource(one_unreadable, 12, 3, 2, lambda path, reason: unreadable.append(path), cache="memory")
    try:
        uploaded = upload_images(source, 10, Slot(4, (3, 12, 12)), torch.device("cpu"))
        assert unreadable == ["train/b/3.png"]
        assert source.is_decoded
        readable = np.delete(np.arange(10), 8)
        assert torch.equal(uploaded[readable], torch.from_numpy(source.gather(readable)))
        assert uploaded[readable].any()
        assert not uploaded[8].any()
    finally:
        source.close()


@pytest.mark.parametrize("augmentation", ["none", "light"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_uploaded_split_gives_the_same_batches(
    make: Make, one_unreadable: ImageSet, augmentation: str, shuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use the CPU in place of the GPU to which the split is uploaded."""

    def read_epochs() -> tuple[list[Batch], list[str]]:
        chosen: list[str] = []
        loader = make(
            one_unreadable,
            shuffle=shuffle,
            augmentation=augmentation,
            on_unreadable=lambda path, reason: None,
            cache="memory",
            on_chosen=lambda choice, why: chosen.append(choice),
        )
        return [batch for epoch in range(3) for batch in loader.epoch(epoch)], chosen

    plain, chosen = read_epochs()
    assert "device" not in chosen
    monkeypatch.setattr(image_loader, "upload_budget_bytes", lambda device: 10 * 3 * 21 * 21)
    uploaded, chosen = read_epochs()
    assert chosen[-1] == "device"
    for one, other in zip(plain, uploaded, strict=True):
        assert torch.equal(one.inputs, other.inputs)
        assert torch.equal(one.targets, other.targets)
