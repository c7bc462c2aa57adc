"""What is read ahead by itself: slots are lent and come back, whatever becomes of what was read into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from engine.data.loading.prefetch import Filled, Reading, Slots
from engine.data.loading.sampler import Share

SHARES = 8
LIMIT = 3
SECONDS = 120.0
Begin = Callable[..., Reading[list[int]]]


@pytest.fixture
def slots() -> Slots[list[int]]:
    return Slots(list, LIMIT)


@pytest.fixture
def told() -> list[str]:
    """What readings have told of their ends."""
    return []


@pytest.fixture
def begin(slots: Slots[list[int]], told: list[str]) -> Iterator[Begin]:
    """Begins to read shares of one number each, 0 to 7; that of the number `broken` cannot be read."""
    begun: list[Reading[list[int]]] = []

    def fill(slot: list[int], share: Share, broken: int) -> Filled[list[int]]:
        if share.indices[0] == broken:
            raise ZeroDivisionError("a bug")
        slot[:] = share.indices.tolist()
        return Filled(slot, 1, 1, np.zeros(1, np.int64))

    def one(broken: int = -1) -> Reading[list[int]]:
        shares = (Share(np.array([number]), 1) for number in range(SHARES))
        reading = Reading(
            1,
            0,
            shares,
            slots=slots,
            fill=lambda slot, share, _epoch: fill(slot, share, broken),
            wanted=lambda: True,
            complete=lambda epoch: told.append(f"complete {epoch}"),
            then=lambda epoch: told.append(f"then {epoch}"),
        )
        begun.append(reading)
        return reading

    yield one
    for reading in begun:
        reading.close()


def free(slots: Slots[list[int]]) -> int:
    """How many slots nobody has."""
    return len(slots._free) + slots._unmade


def take(reading: Reading[list[int]], slots: Slots[list[int]]) -> list[int]:
    """The next number, whose slot is given back."""
    filled = reading.get()
    assert filled is not None
    number = list(filled.slot)
    slots.give(filled.slot)
    return number


def test_that_more_is_read_than_there_are_slots_and_the_end_is_told(
    begin: Begin, slots: Slots[list[int]], told: list[str]
) -> None:
    reading = begin()
    assert [take(reading, slots) for _ in range(SHARES)] == [[number] for number in range(SHARES)]
    assert reading.get() is None
    reading.close()
    assert told == ["complete 1", "then 1"]
    assert free(slots) == LIMIT


def test_that_what_was_read_for_nobody_gives_its_slots_back(
    begin: Begin, slots: Slots[list[int]], told: list[str]
) -> None:
    for _ in range(3):
        reading = begin()
        take(reading, slots)
        with slots.changed:
            assert slots.changed.wait_for(lambda: free(slots) == 0, SECONDS)
        reading.close()
        assert free(slots) == LIMIT
        assert reading.get() is None
    assert told == []


def test_that_a_fault_is_raised_after_all_that_was_read_before_it(
    begin: Begin, slots: Slots[list[int]], told: list[str]
) -> None:
    reading = begin(broken=2)
    assert [take(reading, slots) for _ in range(2)] == [[0], [1]]
    with pytest.raises(ZeroDivisionError, match="a bug"):
        reading.get()
    reading.close()
    assert free(slots) == LIMIT
    assert told == []
