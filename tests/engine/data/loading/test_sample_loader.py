"""Batches of samples that aren't images, with any number of threads and ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.data.datasets.images import DatasetError, UnreadableImage
from engine.data.datasets.samples import Sample, SampleSet
from engine.data.loading.base_loader import PREFETCH, Batch
from engine.data.loading.sample_loader import SampleLoader
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.training.split_loader import SplitLoader, chain_prefetching

SECONDS = 120.0
Make = Callable[..., SampleLoader]


class Numbers(SampleSet):
    """Split in which sample i consists of the values (i, epoch, 0) and the class i % 3.

    Samples in `broken` are unreadable.
    """

    def __init__(self, count: int = 11, broken: tuple[int, ...] = ()) -> None:
        self.count = count
        self.broken = broken
        self.was_loaded = threading.Event()
        self.loaded: list[int] = []

    def __len__(self) -> int:
        return self.count

    def path(self, index: int) -> str:
        return f"sample {index}"

    def load(self, index: int, epoch: int) -> Sample:
        self.was_loaded.set()
        self.loaded.append(index)
        if index in self.broken:
            raise UnreadableImage(self.path(index), "it is damaged")
        return torch.tensor([index, epoch, 0], dtype=torch.float64), torch.tensor(index % 3)


@pytest.fixture
def make() -> Iterator[Make]:
    """Return a function that builds loaders, which are closed after the test."""
    built: list[SampleLoader] = []

    def build(samples: SampleSet, **given: Any) -> SampleLoader:
        rank, world, shuffle = given.pop("rank", 0), given.pop("world", 1), given.pop("shuffle", True)
        sampler = GlobalBatchSampler(len(samples), given.pop("batch", 4), rank, world, RandomStreams(5), shuffle)
        settings: dict[str, Any] = {
            "threads": 2,
            "device": torch.device("cpu"),
            "on_unreadable": lambda path, reason: pytest.fail(f"{path}: {reason}"),
        }
        built.append(SampleLoader(samples, sampler, **settings | given))
        return built[-1]

    yield build
    for loader in built:
        loader.close()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("batches", "decode"))] == []


def rows(batches: Iterator[Batch] | list[Batch]) -> list[list[int]]:
    return [batch.inputs[:, 0].int().tolist() for batch in batches]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batches_have_samples_of_the_epoch(make: Make, threads: int) -> None:
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


def test_wait_for_each_batch_is_measured(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr("engine.data.loading.base_loader.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert [batch.wait_s for batch in make(Numbers(), threads=0).epoch(1)] == [1, 1]


def test_epoch_may_start_late_and_end_early(make: Make) -> None:
    loader = make(Numbers(40), batch=2)
    complete = rows(loader.epoch(1))
    loader.set_threads(1)
    assert rows(loader.epoch(1, 7)) == complete[7:]
    early = loader.epoch(2)
    next(early)
    early.close()  # type: ignore[attr-defined]
    assert rows(loader.epoch(1)) == complete


def test_ranks_form_the_batch_and_may_be_empty(make: Make) -> None:
    single = list(make(Numbers(), shuffle=False, batch=5).epoch(0))
    ranks = [list(make(Numbers(), shuffle=False, batch=5, rank=rank, world=3).epoch(0)) for rank in range(3)]
    for complete, *ranks_parts in zip(single, *ranks, strict=True):
        assert torch.equal(torch.cat([batch.inputs for batch in ranks_parts]), complete.inputs)
        assert torch.equal(torch.cat([batch.targets for batch in ranks_parts]), complete.targets)
        assert {batch.global_size for batch in ranks_parts} == {len(complete.targets)}
    last = ranks[2][-1]
    assert (tuple(last.inputs.shape), tuple(last.targets.shape), last.targets.dtype) == ((0, 3), (0,), torch.int64)


@pytest.mark.parametrize("threads", [0, 3])
def test_unreadable_samples_are_replaced_or_left_out(make: Make, threads: int) -> None:
    reported: list[str] = []
    given: dict[str, Any] = {
        "threads": threads,
        "on_unreadable": lambda path, reason: reported.append(f"{path}: {reason}"),
    }
    train = make(Numbers(6, broken=(1, 2, 5)), batch=6, **given)
    for epoch in range(2):
        train.sampler.set_epoch(epoch)
        [share] = train.sampler
        expected = [{1: 3, 2: 3, 5: 0}.get(index, index) for index in share.indices.tolist()]
        assert rows(train.epoch(epoch)) == [expected]
    assert sorted(reported) == [f"sample {number}: it is damaged" for number in (1, 2, 5)]
    assert rows(make(Numbers(6, broken=(0, 4, 5)), shuffle=False, batch=2, **given).epoch(0)) == [[1], [2, 3], []]


def test_unreadable_samples_are_read_and_reported_once(make: Make) -> None:
    class Tiles(Numbers):
        def path(self, index: int) -> str:
            return f"scene {index // 4}"

    reported: list[str] = []
    tiles = Tiles(8, broken=(1, 2, 6))
    loader = make(tiles, shuffle=False, on_unreadable=lambda path, reason: reported.append(path))
    assert [rows(loader.epoch(epoch)) for epoch in range(2)] == [[[0, 3], [4, 5, 7]]] * 2
    assert sorted(reported) == ["scene 0", "scene 1"]
    assert [tiles.loaded.count(index) for index in range(8)] == [2, 1, 1, 2, 2, 2, 1, 2]


def test_unusable_batch_raises_in_consumer(make: Make) -> None:
    class Ragged(Numbers):
        def load(self, index: int, epoch: int) -> Sample:
            return torch.zeros(3 + (index == 2)), torch.tensor(0)

    reported = "The inputs of sample 2 have the shape \\[4\\], those of sample 0 \\[3\\]"
    with pytest.raises(DatasetError, match=reported):
        list(make(Ragged(4), shuffle=False).epoch(0))
    with pytest.raises(DatasetError, match="No sample of the training set can be read"):
        list(make(Numbers(3, broken=(0, 1, 2)), on_unreadable=lambda path, reason: None).epoch(0))


def test_validation_is_prefetched_in_last_steps(make: Make) -> None:
    train, held_out = make(Numbers(40), batch=2), Numbers(8)
    val = make(held_out, shuffle=False)
    chain_prefetching(SplitLoader(20, 40, train), SplitLoader(2, 8, val), epochs=2)
    batches = train.epoch(1)
    for _ in range(len(train) - PREFETCH - 2):
        next(batches)
    assert not held_out.was_loaded.is_set()
    next(batches)
    assert held_out.was_loaded.wait(SECONDS)
    assert len(list(batches)) == PREFETCH + 1
    assert rows(val.epoch(1)) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_class_counts_of_readable_samples() -> None:
    assert Numbers(11, broken=(2,)).class_counts(3) == [4, 4, 2]


def test_class_counts_ignore_invalid_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    target = torch.tensor([[-100, 0, 1], [1, 255, -1]])  # values with which losses and masks mark ignored entries
    monkeypatch.setattr(Numbers, "load", lambda self, index, epoch: (torch.zeros(1), target))
    assert Numbers(2).class_counts(3) == [2, 4, 0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU on this machine")
@pytest.mark.parametrize("threads", [0, 2])
def test_gpu_batches_match_cpu_under_load(make: Make, threads: int) -> None:
    single = list(make(Numbers(60), threads=0).epoch(1))
    busy = torch.rand(3000, 3000, device="cuda")
    for expected, received in zip(
        single, make(Numbers(60), threads=threads, device=torch.device("cuda")).epoch(1), strict=True
    ):
        busy = busy @ busy / 3000  # delay the operations that read the batch, so that copies could overtake them
        reported = received.inputs * 1.0
        assert received.inputs.device.type == received.targets.device.type == "cuda"
        assert torch.equal(reported.cpu(), expected.inputs)
        assert torch.equal(received.targets.cpu(), expected.targets)
