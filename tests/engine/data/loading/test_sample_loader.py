"""Batches of samples that are no images: whole, the same for any number of threads and workers, and read ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.loading.base_loader import AHEAD, Batch
from engine.data.loading.sample_loader import SampleLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.training.split_loader import SplitLoader, chain_prefetching

SECONDS = 120.0
Make = Callable[..., SampleLoader]


class Numbers(SampleSet):
    """Sample i is the row (i, epoch, 0), its target the class i % 3; those in `broken` cannot be read."""

    def __init__(self, count: int = 11, broken: tuple[int, ...] = ()) -> None:
        self.count = count
        self.broken = broken
        self.asked = threading.Event()

    def __len__(self) -> int:
        return self.count

    def path(self, index: int) -> str:
        return f"sample {index}"

    def load(self, index: int, epoch: int) -> Sample:
        self.asked.set()
        if index in self.broken:
            raise UnreadableImage(self.path(index), "it is damaged")
        return torch.tensor([index, epoch, 0], dtype=torch.float64), torch.tensor(index % 3)


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes loaders that are closed at the end."""
    made: list[SampleLoader] = []

    def build(samples: SampleSet, **given: Any) -> SampleLoader:
        rank, world, shuffle = given.pop("rank", 0), given.pop("world", 1), given.pop("shuffle", True)
        sampler = GlobalBatchSampler(len(samples), given.pop("batch", 4), rank, world, RandomStreams(5), shuffle)
        settings: dict[str, Any] = {
            "threads": 2,
            "device": torch.device("cpu"),
            "on_unreadable": lambda path, reason: pytest.fail(f"{path}: {reason}"),
        }
        made.append(SampleLoader(samples, sampler, **settings | given))
        return made[-1]

    yield build
    for loader in made:
        loader.close()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("batches", "decode"))] == []


def rows(batches: Iterator[Batch] | list[Batch]) -> list[list[int]]:
    return [batch.inputs[:, 0].int().tolist() for batch in batches]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_that_batches_hold_the_samples_of_the_sampler_as_they_are_in_the_epoch(make: Make, threads: int) -> None:
    loader = make(Numbers(), threads=threads)
    batches = list(loader.epoch(3))
    loader.sampler.set_epoch(3)
    assert rows(batches) == [share.indices.tolist() for share in loader.sampler]
    assert all((batch.inputs[:, 1] == 3).all() for batch in batches)
    assert all((batch.targets == batch.inputs[:, 0] % 3).all() for batch in batches)
    assert {batch.inputs.dtype for batch in batches} == {torch.float32}
    assert {batch.targets.dtype for batch in batches} == {torch.int64}
    assert loader.decoded == 8
    assert loader.decoding_s > 0


def test_that_an_epoch_may_be_begun_in_its_middle_and_left_early(make: Make) -> None:
    loader = make(Numbers(40), batch=2)
    whole = rows(loader.epoch(1))
    loader.set_threads(1)
    assert rows(loader.epoch(1, 7)) == whole[7:]
    early = loader.epoch(2)
    next(early)
    early.close()  # type: ignore[attr-defined]
    assert rows(loader.epoch(1)) == whole


def test_that_shares_of_the_ranks_are_the_batch_and_may_be_empty(make: Make) -> None:
    alone = list(make(Numbers(), shuffle=False, batch=5).epoch(0))
    ranks = [list(make(Numbers(), shuffle=False, batch=5, rank=rank, world=3).epoch(0)) for rank in range(3)]
    for whole, *parts in zip(alone, *ranks, strict=True):
        assert torch.equal(torch.cat([part.inputs for part in parts]), whole.inputs)
        assert torch.equal(torch.cat([part.targets for part in parts]), whole.targets)
        assert {part.global_size for part in parts} == {len(whole.targets)}
    last = ranks[2][-1]
    assert (tuple(last.inputs.shape), tuple(last.targets.shape), last.targets.dtype) == ((0, 3), (0,), torch.int64)


@pytest.mark.parametrize("threads", [0, 3])
def test_that_unreadable_samples_are_replaced_in_training_left_out_of_validation_and_told_once(
    make: Make, threads: int
) -> None:
    told: list[str] = []
    given: dict[str, Any] = {"threads": threads, "on_unreadable": lambda path, reason: told.append(f"{path}: {reason}")}
    train = make(Numbers(6, broken=(1, 2, 5)), batch=6, **given)
    for epoch in range(2):
        train.sampler.set_epoch(epoch)
        [share] = train.sampler
        wanted = [{1: 3, 2: 3, 5: 0}.get(index, index) for index in share.indices.tolist()]
        assert rows(train.epoch(epoch)) == [wanted]
    assert sorted(told) == [f"sample {place}: it is damaged" for place in (1, 2, 5)]
    assert rows(make(Numbers(6, broken=(1, 4, 5)), shuffle=False, batch=2, **given).epoch(0)) == [[0], [2, 3], []]


def test_that_what_cannot_be_a_batch_is_an_error_in_the_consumer(make: Make) -> None:
    class Ragged(Numbers):
        def load(self, index: int, epoch: int) -> Sample:
            return torch.zeros(3 + (index == 2)), torch.tensor(0)

    told = "The inputs of sample 2 have the shape \\[4\\], those of sample 0 \\[3\\]"
    with pytest.raises(DatasetError, match=told):
        list(make(Ragged(4), shuffle=False).epoch(0))
    with pytest.raises(DatasetError, match="No sample of the training set can be read"):
        list(make(Numbers(3, broken=(0, 1, 2)), on_unreadable=lambda path, reason: None).epoch(0))


def test_that_validation_is_read_during_the_last_steps(make: Make) -> None:
    train, held_out = make(Numbers(40), batch=2), Numbers(8)
    val = make(held_out, shuffle=False)
    chain_prefetching(SplitLoader(20, 40, train), SplitLoader(2, 8, val), epochs=2)
    batches = train.epoch(1)
    for _ in range(len(train) - AHEAD - 2):
        next(batches)
    assert not held_out.asked.is_set()
    next(batches)
    assert held_out.asked.wait(SECONDS)
    assert len(list(batches)) == AHEAD + 1
    assert rows(val.epoch(1)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_that_classes_are_counted_among_all_targets() -> None:
    assert Numbers(11, broken=(2,)).class_counts(3) == [4, 4, 2]


def test_that_targets_that_are_no_class_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    target = torch.tensor([[-100, 0, 1], [1, 255, -1]])  # as losses and masks mark what is to be ignored
    monkeypatch.setattr(Numbers, "load", lambda self, index, epoch: (torch.zeros(1), target))
    assert Numbers(2).class_counts(3) == [2, 4, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU on this machine")
@pytest.mark.parametrize("threads", [0, 2])
def test_that_a_gpu_is_given_the_same_batches_while_it_reads_others(make: Make, threads: int) -> None:
    alone = list(make(Numbers(60), threads=0).epoch(1))
    busy = torch.rand(3000, 3000, device="cuda")
    for here, there in zip(
        alone, make(Numbers(60), threads=threads, device=torch.device("cuda")).epoch(1), strict=True
    ):
        busy = busy @ busy / 3000  # so that the copies overtake what reads the batch
        told = there.inputs * 1.0
        assert there.inputs.device.type == there.targets.device.type == "cuda"
        assert torch.equal(told.cpu(), here.inputs)
        assert torch.equal(there.targets.cpu(), here.targets)
