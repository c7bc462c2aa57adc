"""Batches are read before they are asked for, in the thread that is fastest, and over the ends of epochs."""

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
from engine.data.loading.base_loader import AHEAD, Batch
from engine.data.loading.image_loader import BatchLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.loading.staging import Slot
from engine.data.randomness import RandomStreams
from engine.training.split_loader import SplitLoader, chain_prefetching
from tests.support.images import noise
from tests.support.loaders import loader_of

Make = Callable[..., BatchLoader]
SECONDS = 120.0


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes loaders of a split that are closed at the end."""
    made: list[BatchLoader] = []

    def build(images: ImageSet, *, batch: int = 4, shuffle: bool = True, **given: Any) -> BatchLoader:
        sampler = GlobalBatchSampler(len(images), batch, 0, 1, RandomStreams(5), shuffle)
        made.append(loader_of(images, sampler, **given))
        return made[-1]

    yield build
    for loader in made:
        loader.close()


@pytest.fixture
def splits(tmp_path: Path) -> Splits:
    """40 images for training and 12 for validation."""
    for place in range(52):
        split = "train" if place < 40 else "val"
        noise(tmp_path / "set" / split / "ab"[place % 2] / f"{place}.png", place, size=(20, 20))
    return open_splits(str(tmp_path / "set"), val_fraction=0.2, seed=0)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "batches"]


def same(some: list[Batch], others: list[Batch]) -> bool:
    return len(some) == len(others) and all(
        torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)
        for one, other in zip(some, others, strict=True)
    )


def test_that_validation_is_read_during_the_last_steps_and_the_next_epoch_during_validation(
    make: Make, splits: Splits
) -> None:
    """An image that cannot be read tells when it is met: the first of validation, and the first of the second epoch."""
    expected = list(make(splits.train).epoch(1))
    met = {"train": threading.Event(), "val": threading.Event()}
    (Path(splits.val.folder) / "val/a/40.png").write_bytes(b"")
    train = make(splits.train, keep="off", on_unreadable=lambda path, reason: met["train"].set())
    val = make(splits.val, shuffle=False, keep="off", on_unreadable=lambda path, reason: met["val"].set())
    chain_prefetching(SplitLoader(10, 40, train), SplitLoader(3, 12, val), epochs=2)
    batches = train.epoch(1)
    trained = [next(batches) for _ in range(len(train) - 1)]
    assert met["val"].wait(SECONDS), "nothing of the validation was read before the last step"
    for path in (Path(splits.val.folder) / "train").rglob("*.png"):
        path.write_bytes(b"")
    trained.append(next(batches))
    validation = val.epoch(1)
    next(validation)
    assert met["train"].wait(SECONDS), "nothing of the next epoch was read during validation"
    assert same(trained, expected)


@pytest.mark.parametrize("start", [0, 3])
def test_that_what_was_begun_is_what_the_epoch_gives(make: Make, splits: Splits, start: int) -> None:
    expected = list(make(splits.train, threads=0).epoch(2))
    loader = make(splits.train, keep="off")
    loader.begin(2, start)
    [thread] = readers()
    batches = loader.epoch(2, start)
    first = next(batches)
    assert readers() == [thread], "it is read anew"
    assert same([first, *batches], expected[start:])
    assert readers() == []


def test_that_what_was_begun_is_given_up_for_another_epoch(make: Make, splits: Splits) -> None:
    loader = make(splits.train, keep="off")
    loader.begin(2)
    loader.begin(3)
    assert same(list(loader.epoch(4, 1)), list(make(splits.train, threads=0).epoch(4))[1:])
    assert readers() == []


def test_that_reading_in_turn_ends_with_the_loaders(make: Make, splits: Splits) -> None:
    train, val = make(splits.train, batch=20, keep="off"), make(splits.val, keep="off")
    chain_prefetching(SplitLoader(2, 40, train), SplitLoader(3, 12, val), epochs=1000)
    next(train.epoch(1))
    train.close()
    val.close()
    assert readers() == []


def test_that_nothing_is_read_beyond_the_last_epoch(make: Make, splits: Splits) -> None:
    train, val = make(splits.train, keep="off"), make(splits.val, keep="off")
    chain_prefetching(SplitLoader(10, 40, train), SplitLoader(3, 12, val), epochs=2)
    assert len(list(train.epoch(2))) == 10
    assert len(list(val.epoch(2))) == 3
    assert readers() == []


@pytest.mark.parametrize("small", [True, False])
def test_that_small_batches_of_decoded_images_are_put_together_in_the_callers_thread(
    make: Make, splits: Splits, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(engine.data.loading.image_loader, "INLINE_BYTES", 0)
    loader = make(splits.train, keep="memory")
    first = loader.epoch(0)
    next(first)
    assert readers()
    list(first)
    later = loader.epoch(1)
    begun = next(later)
    assert bool(readers()) != small
    assert same([begun, *later], list(make(splits.train, threads=0).epoch(1)))


@pytest.mark.parametrize(("keep", "decoded"), [("memory", [40, 40]), ("off", [35, 70])])
def test_that_one_epoch_decodes_all_that_is_kept_though_it_drops_a_batch(
    make: Make, splits: Splits, keep: str, decoded: list[int]
) -> None:
    loader = make(splits.train, batch=7, keep=keep)
    for epoch, count in enumerate(decoded):
        assert sum(len(batch.targets) for batch in loader.epoch(epoch)) == 35
        assert loader.decoded == count


def test_that_idx_images_are_put_together_in_the_callers_thread_from_the_first_on(make: Make, digits: Path) -> None:
    split = open_splits(str(digits), val_fraction=0.2, seed=0).train
    one_channel = {"channels": 1, "mean": (0.5,), "std": (0.5,), "augmentation": "none", "size": 28}
    for _ in make(split, **one_channel).epoch(0):
        assert readers() == []


def test_that_the_next_split_is_begun_where_batches_are_put_together_in_the_callers_thread(
    make: Make, splits: Splits
) -> None:
    train, val = make(splits.train, keep="memory"), make(splits.val, batch=1, keep="off")
    list(train.epoch(0))
    chain_prefetching(SplitLoader(10, 40, train), SplitLoader(12, 12, val), epochs=9)
    begun = [bool(readers()) for _ in train.epoch(1)]
    assert begun == [False] * (10 - AHEAD - 1) + [True] * (AHEAD + 1)


def test_that_threads_change_within_an_epoch_and_the_batches_do_not(make: Make, splits: Splits) -> None:
    loader = make(splits.train, threads=0, keep="off")
    batches = loader.epoch(0)
    found = [next(batches)]
    assert readers() == []
    for threads in (2, 1, 3, 0):
        loader.set_threads(threads)
        found.append(next(batches))
        assert loader.threads == threads
    found += batches
    assert same(found, list(make(splits.train, threads=2).epoch(0)))
    assert readers() == []


@pytest.mark.long
def test_that_reading_ahead_takes_a_few_slots_however_long_the_epoch_is(make: Make, splits: Splits) -> None:
    def slots() -> int:
        return sum(type(thing) is Slot for thing in gc.get_objects())

    gc.collect()  # or those of earlier tests would count, until they are collected in the midst of this one
    before = slots()
    loader = make(splits.train, batch=1, keep="off")
    for epoch in range(2):
        for number, _ in enumerate(loader.epoch(epoch)):
            assert number % 8 or slots() - before <= AHEAD + 1  # counting takes far longer than a batch
    assert slots() > before


def test_that_batches_stay_as_they_are_while_later_ones_are_made(make: Make, splits: Splits) -> None:
    loader = make(splits.train, keep="memory")
    for epoch in range(2):  # by a thread, and in this one
        kept, copies = [], []
        for batch in loader.epoch(epoch):
            kept.append(batch)
            copies.append((batch.inputs.clone(), batch.targets.clone()))
        assert all(torch.equal(batch.inputs, inputs) for batch, (inputs, _) in zip(kept, copies, strict=True))
        assert all(torch.equal(batch.targets, targets) for batch, (_, targets) in zip(kept, copies, strict=True))


def test_that_the_memory_format_changes_the_order_in_memory_alone(make: Make, splits: Splits) -> None:
    plain = list(make(splits.train).epoch(0))
    turned = list(make(splits.train, memory_format=torch.channels_last).epoch(0))
    assert same(plain, turned)
    assert all(batch.inputs.is_contiguous() for batch in plain)
    assert all(batch.inputs.is_contiguous(memory_format=torch.channels_last) for batch in turned)
    assert not turned[0].inputs.is_contiguous()


def test_that_the_parts_of_a_batchs_way_are_marked(make: Make, splits: Splits) -> None:
    marks: list[str] = []
    loader = make(splits.train, mark=marks.append)
    batches = loader.epoch(0)
    assert marks == []
    for number, _ in enumerate(batches, 1):
        assert marks == ["data", "augment"] * number
