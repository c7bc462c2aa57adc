"""Prefetching of batches into slots, which are buffers that batches reuse: errors, and early stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from engine.data.loading.prefetch import Prefetcher, Slots, StagedBatch
from engine.data.loading.sampler import RankSamples

BATCHES = 8
LIMIT = 3
SECONDS = 120.0
Start = Callable[..., Prefetcher[list[int]]]


@pytest.fixture
def slots() -> Slots[list[int]]:
    return Slots(list, LIMIT)


@pytest.fixture
def events() -> list[str]:
    """Return a list to which prefetchers append the names of their callbacks at the end of an epoch."""
    return []


@pytest.fixture
def start(slots: Slots[list[int]], events: list[str]) -> Iterator[Start]:
    """Return a function that starts a prefetcher of eight batches, numbered from 0.

    Its argument `broken` is the number of a batch whose reading raises ZeroDivisionError. By default, all are readable.
    """
    started: list[Prefetcher[list[int]]] = []

    def fill(slot: list[int], batch: RankSamples, broken: int) -> StagedBatch[list[int]]:
        if batch.indices[0] == broken:
            raise ZeroDivisionError("a bug")
        slot[:] = batch.indices.tolist()
        return StagedBatch(slot, 1, 1, np.zeros(1, np.int64))

    def build(
        broken: int = -1,
        on_epoch_read: Callable[[int], None] = lambda epoch: events.append("on_epoch_read"),
        should_continue: Callable[[], bool] = lambda: True,
    ) -> Prefetcher[list[int]]:
        batches = (RankSamples(np.array([number]), 1) for number in range(BATCHES))
        prefetcher = Prefetcher(
            1,
            0,
            batches,
            slots=slots,
            fill=lambda slot, batch, _epoch: fill(slot, batch, broken),
            should_continue=should_continue,
            finish_epoch=lambda epoch: events.append("finish_epoch"),
            on_epoch_read=on_epoch_read,
        )
        started.append(prefetcher)
        return prefetcher

    yield build
    for prefetcher in started:
        prefetcher.close()


def count_free_slots(slots: Slots[list[int]]) -> int:
    """Return the number of slots that no batch occupies."""
    return len(slots._free) + slots._not_created


def take_batch(prefetcher: Prefetcher[list[int]], slots: Slots[list[int]]) -> list[int]:
    """Return the next batch number and release its slot."""
    staged = prefetcher.get()
    assert staged is not None
    number = list(staged.slot)
    slots.release(staged.slot)
    return number


def test_prefetcher_reuses_slots_and_reports_the_end(start: Start, slots: Slots[list[int]], events: list[str]) -> None:
    prefetcher = start()
    assert [take_batch(prefetcher, slots) for _ in range(BATCHES)] == [[number] for number in range(BATCHES)]
    assert prefetcher.get() is None
    prefetcher.close()
    assert events == ["finish_epoch", "on_epoch_read"]
    assert count_free_slots(slots) == LIMIT


def test_close_releases_slots_of_unused_batches(start: Start, slots: Slots[list[int]], events: list[str]) -> None:
    for _ in range(3):
        prefetcher = start()
        take_batch(prefetcher, slots)
        with slots.changed:
            assert slots.changed.wait_for(lambda: count_free_slots(slots) == 0, SECONDS)
        prefetcher.close()
        assert count_free_slots(slots) == LIMIT
        assert prefetcher.get() is None
    assert events == []


def test_prefetcher_stops_early_without_reporting_the_end(
    start: Start, slots: Slots[list[int]], events: list[str]
) -> None:
    answers = iter((True, True, False))
    prefetcher = start(should_continue=lambda: next(answers))
    assert [take_batch(prefetcher, slots) for _ in range(2)] == [[0], [1]]
    assert prefetcher.get() is None
    prefetcher.close()
    assert events == []


def test_get_raises_read_error_after_earlier_batches(start: Start, slots: Slots[list[int]], events: list[str]) -> None:
    prefetcher = start(broken=2)
    assert [take_batch(prefetcher, slots) for _ in range(2)] == [[0], [1]]
    with pytest.raises(ZeroDivisionError, match="a bug"):
        prefetcher.get()
    prefetcher.close()
    assert count_free_slots(slots) == LIMIT
    assert events == []


def test_get_raises_error_of_on_epoch_read(start: Start, slots: Slots[list[int]]) -> None:
    def fail(epoch: int) -> None:
        raise RuntimeError(f"epoch {epoch}: can't start new thread")

    prefetcher = start(on_epoch_read=fail)
    assert [take_batch(prefetcher, slots) for _ in range(BATCHES)] == [[number] for number in range(BATCHES)]
    with pytest.raises(RuntimeError, match="epoch 1: can't start new thread"):
        prefetcher.get()
