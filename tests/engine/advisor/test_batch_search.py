"""The search for the largest batch size, on machines whose memory is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.advisor.batch_search import MOST_TRIALS, Probe, Searched, search


class Machine:
    """One of `limit` bytes, of which `fixed` and then `each` image take some; `curved` adds to large sizes."""

    def __init__(self, limit: int, fixed: int, each: int, *, curved: float = 0.0, tells: bool = True) -> None:
        self.limit, self.fixed, self.each, self.curved, self.tells = limit, fixed, each, curved, tells
        self.tried: list[int] = []

    def used(self, size: int) -> int:
        return round(self.fixed + self.each * size + self.curved * self.each * size * size / self.true_limit_of_line())

    def true_limit_of_line(self) -> float:
        return max(1.0, (self.limit - self.fixed) / self.each)

    def true_limit(self, unit: int, most: int) -> int:
        return max((size for size in range(unit, most + 1, unit) if self.used(size) <= self.limit), default=0)

    def probe(self, size: int) -> Probe | None:
        self.tried.append(size)
        if self.used(size) > self.limit:
            return None
        return Probe(size / (size + 20), {"memory": (self.used(size) if self.tells else 0, self.limit)})


def searched(machine: Machine, unit: int = 1, most: int = 4000) -> Searched:
    return search(machine.probe, unit=unit, most=most)


@settings(deadline=None)
@given(
    limit=st.integers(50_000, 3_000_000),
    share=st.floats(0.0, 0.9),
    each=st.integers(300, 20_000),
    unit=st.sampled_from([1, 2, 3, 8]),
    curved=st.sampled_from([0.0, 0.1, 0.2]),
)
def test_that_the_found_size_is_within_a_twentieth_of_the_limit_after_eight_trials_at_most(
    limit: int, share: float, each: int, unit: int, curved: float
) -> None:
    machine = Machine(limit, round(share * limit), each, curved=curved)
    found = searched(machine, unit)
    true = machine.true_limit(unit, 4000)
    assert len(machine.tried) <= MOST_TRIALS
    assert machine.tried == list(dict.fromkeys(machine.tried))
    assert found.largest % unit == 0
    assert 0.95 * true - unit < found.largest <= true
    full = machine.true_limit(unit, 5000)  # beyond what the dataset has
    assert found.largest <= max(unit, 0.98 * (full + unit))  # with room to spare


@pytest.mark.parametrize("limit", [30_000, 400_000, 1_000_000])
def test_that_a_limit_is_found_that_no_measure_foretells(limit: int) -> None:
    machine = Machine(limit, 0, 1000, tells=False)
    found = searched(machine)
    assert len(machine.tried) <= MOST_TRIALS
    assert 0.7 * limit / 1000 <= found.largest <= limit / 1000


def test_that_the_dataset_is_the_limit_where_all_of_it_fits() -> None:
    found = searched(Machine(10**9, 0, 1000), most=350)
    assert found.largest == 350


def test_that_where_nothing_fits_nothing_is_found() -> None:
    found = searched(Machine(100, 1000, 1))
    assert found.largest == 0
    assert found.knee == 0
    assert set(found.trials.values()) == {None}


def test_that_the_knee_is_where_no_larger_size_is_faster_by_a_twentieth() -> None:
    speeds = {4: 100.0, 16: 300.0, 64: 398.0, 256: 400.0, 512: 380.0}
    trials: dict[int, Probe | None] = {size: Probe(speed, {}) for size, speed in speeds.items()}
    assert Searched({**trials, 1024: None}, 512).knee == 64


def test_that_trials_that_are_left_narrow_the_gap_below_the_knee() -> None:
    machine = Machine(1_000_000, 0, 1000)
    found = searched(machine)
    fitting = sorted(size for size, tried in found.trials.items() if tried)
    before = fitting[fitting.index(found.knee) - 1]
    assert found.knee <= 4 * before
