"""Prefetching within an epoch and across its end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import engine.data.loading.image_loader
from engine.data.datasets.images import ImageSet
from engine.data.datasets.open_splits import Splits, open_splits
from engine.data.loading.base_loader import PREFETCH, Batch
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.loading.staging import Slot
from engine.data.randomness import RandomStreams
from engine.training.split_loader import SplitLoader, chain_prefetching
from tests.support.images import write_noise
from tests.support.loaders import make_loader

Make = Callable[..., BatchLoader]
SECONDS = 120.0


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that builds loaders, which are closed after the test."""
    built: list[BatchLoader] = []

    def build(images: ImageSet, *, batch: int = 4, shuffle: bool = True, **given: Any) -> BatchLoader:
        sampler = GlobalBatchSampler(len(images), batch, 0, 1, RandomStreams(5), shuffle)
        built.append(make_loader(images, sampler, **given))
        return built[-1]

    yield build
    for loader in built:
        loader.close()


@pytest.fixture
def splits(tmp_path: Path) -> Splits:
    """Write 40 training and 12 validation images, and return the opened splits."""
    for number in range(52):
        split = "train" if number < 40 else "val"
        write_noise(tmp_path / "set" / split / "ab"[number % 2] / f"{number}.png", number, size=(20, 20))
    return open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "batches"]


def are_equal(some: list[Batch], others: list[Batch]) -> bool:
    return len(some) == len(others) and all(
        torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)
        for one, other in zip(some, others, strict=True)
    )


def test_chained_loaders_prefetch_each_other(make: Make, splits: Splits) -> None:
    """Test that, at the end of its epoch, each of two chained loaders prefetches for the other one.

    An image of the other split is unreadable, so prefetching shows as the report of this image.
    """
    expected = list(make(splits.train).epoch(1))
    reached = {"train": threading.Event(), "val": threading.Event()}
    (Path(splits.val.folder) / "val/a/40.png").write_bytes(b"")
    train = make(splits.train, cache="off", on_unreadable=lambda path, reason: reached["train"].set())
    val = make(splits.val, shuffle=False, cache="off", on_unreadable=lambda path, reason: reached["val"].set())
    chain_prefetching(SplitLoader(10, 40, train), SplitLoader(3, 12, val), epochs=2)
    batches = train.epoch(1)
    trained = [next(batches) for _ in range(len(train) - 1)]
    assert reached["val"].wait(SECONDS), "nothing of the validation was read before the last step"
    for path in (Path(splits.val.folder) / "train").rglob("*.png"):
        path.write_bytes(b"")
    trained.append(next(batches))
    validation = val.epoch(1)
    next(validation)
    assert reached["train"].wait(SECONDS), "nothing of the next epoch was read during validation"
    assert are_equal(trained, expected)


@pytest.mark.parametrize("start", [0, 3])
def test_epoch_uses_prefetched_batches(make: Make, splits: Splits, start: int) -> None:
    expected = list(make(splits.train, threads=0).epoch(2))
    loader = make(splits.train, cache="off")
    loader.prefetch(2, start)
    [thread] = readers()
    batches = loader.epoch(2, start)
    first = next(batches)
    assert readers() == [thread], "it is read anew"
    assert are_equal([first, *batches], expected[start:])
    assert readers() == []


@pytest.mark.parametrize(("epoch", "start"), [(4, 1), (1, 1), (2, 3)])
def test_other_epoch_discards_prefetched_batches(make: Make, splits: Splits, epoch: int, start: int) -> None:
    loader = make(splits.train, cache="off")
    loader.prefetch(2)
    loader.prefetch(3)
    assert are_equal(list(loader.epoch(epoch, start)), list(make(splits.train, threads=0).epoch(epoch))[start:])
    assert readers() == []


def test_epoch_is_prefetched_once(make: Make, splits: Splits) -> None:
    loader = make(splits.val, cache="off")
    for _ in range(2):
        loader.prefetch(2)
        for thread in readers():
            thread.join()
    assert loader.decoded == len(splits.val)
    loader.prefetch(3)
    [thread] = readers()  # which waits for free slots
    batches = loader.epoch(2)
    first = next(batches)
    assert readers() == [thread]
    for epoch, found in ((2, [first, *batches]), (3, list(loader.epoch(3)))):
        assert are_equal(found, list(make(splits.val, threads=0).epoch(epoch)))
    assert loader.decoded == 2 * len(splits.val)


@pytest.mark.parametrize("start", [0, 9])
def test_end_of_an_inline_epoch_is_reported(make: Make, splits: Splits, start: int) -> None:
    loader = make(splits.train, threads=0)
    read: list[int] = []
    loader.on_epoch_read = read.append
    assert len(list(loader.epoch(5, start))) == 10 - start
    assert read == [5]


def test_close_ends_chained_prefetching(make: Make, splits: Splits) -> None:
    train, val = make(splits.train, batch=20, cache="off"), make(splits.val, cache="off")
    chain_prefetching(SplitLoader(2, 40, train), SplitLoader(3, 12, val), epochs=1000)
    next(train.epoch(1))
    train.close()
    val.close()
    assert readers() == []


def test_chained_loaders_stop_after_last_epoch(make: Make, splits: Splits) -> None:
    train, val = make(splits.train, cache="off"), make(splits.val, cache="off")
    chain_prefetching(SplitLoader(10, 40, train), SplitLoader(3, 12, val), epochs=2)
    assert len(list(train.epoch(2))) == 10
    assert len(list(val.epoch(2))) == 3
    assert readers() == []


@pytest.mark.parametrize("small", [True, False])
def test_small_decoded_batches_are_read_inline(
    make: Make, splits: Splits, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(engine.data.loading.image_loader, "INLINE_BYTES", 0)
    loader = make(splits.train, cache="memory")
    first = loader.epoch(0)
    next(first)
    assert readers()
    list(first)
    later = loader.epoch(1)
    first_batch = next(later)
    assert bool(readers()) != small
    assert are_equal([first_batch, *later], list(make(splits.train, threads=0).epoch(1)))


@pytest.mark.parametrize(("cache", "decoded"), [("memory", [40, 40]), ("off", [35, 70])])
def test_first_epoch_decodes_dropped_batch_for_cache(
    make: Make, splits: Splits, cache: str, decoded: list[int]
) -> None:
    loader = make(splits.train, batch=7, cache=cache)
    for epoch, count in enumerate(decoded):
        assert sum(len(batch.targets) for batch in loader.epoch(epoch)) == 35
        assert loader.decoded == count


def test_idx_images_are_read_inline_from_the_start(make: Make, digits: Path) -> None:
    split = open_splits(str(digits), val_fraction=0.2, seed=0).train
    one_channel = {"channels": 1, "mean": (0.5,), "std": (0.5,), "augmentation": "none", "size": 28}
    for _ in make(split, **one_channel).epoch(0):
        assert readers() == []


def test_inline_epoch_starts_prefetching_of_next_split(make: Make, splits: Splits) -> None:
    train, val = make(splits.train, cache="memory"), make(splits.val, batch=1, cache="off")
    list(train.epoch(0))
    chain_prefetching(SplitLoader(10, 40, train), SplitLoader(12, 12, val), epochs=9)
    is_prefetching = [bool(readers()) for _ in train.epoch(1)]
    assert is_prefetching == [False] * (10 - PREFETCH - 1) + [True] * (PREFETCH + 1)


def test_set_threads_within_epoch_keeps_batches(make: Make, splits: Splits) -> None:
    loader = make(splits.train, threads=0, cache="off")
    batches = loader.epoch(0)
    found = [next(batches)]
    assert readers() == []
    for threads in (2, 1, 3, 0):
        loader.set_threads(threads)
        found.append(next(batches))
        assert loader.threads == threads
        assert not threads or readers()
    found += batches
    assert are_equal(found, list(make(splits.train, threads=2).epoch(0)))
    assert readers() == []


@pytest.mark.long
def test_prefetching_uses_few_slots(make: Make, splits: Splits) -> None:
    def slots() -> int:
        return sum(type(thing) is Slot for thing in gc.get_objects())

    gc.collect()  # don't count slots of earlier tests
    before = slots()
    loader = make(splits.train, batch=1, cache="off")
    for epoch in range(2):
        for number, _ in enumerate(loader.epoch(epoch)):
            assert number % 8 or slots() - before <= PREFETCH + 1  # counting takes far longer than a batch
    assert slots() > before


def test_batches_are_not_overwritten_by_later_ones(make: Make, splits: Splits) -> None:
    loader = make(splits.train, cache="memory")
    for epoch in range(2):  # in another thread, then in this one
        batches_read, copies = [], []
        for batch in loader.epoch(epoch):
            batches_read.append(batch)
            copies.append((batch.inputs.clone(), batch.targets.clone()))
        assert all(torch.equal(batch.inputs, inputs) for batch, (inputs, _) in zip(batches_read, copies, strict=True))
        assert all(
            torch.equal(batch.targets, targets) for batch, (_, targets) in zip(batches_read, copies, strict=True)
        )


def test_memory_format_changes_strides_only(make: Make, splits: Splits) -> None:
    plain = list(make(splits.train).epoch(0))
    channels_last = list(make(splits.train, memory_format=torch.channels_last).epoch(0))
    assert are_equal(plain, channels_last)
    assert all(batch.inputs.is_contiguous() for batch in plain)
    assert all(batch.inputs.is_contiguous(memory_format=torch.channels_last) for batch in channels_last)
    assert not channels_last[0].inputs.is_contiguous()


def test_loader_marks_stages_of_each_batch(make: Make, splits: Splits) -> None:
    marks: list[str] = []
    loader = make(splits.train, on_stage_end=marks.append)
    batches = loader.epoch(0)
    assert marks == []
    for number, _ in enumerate(batches, 1):
        assert marks == ["data", "augment"] * number
