"""The search for the largest batch size, on machines whose memory is known."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.advisor.batch_search import MOST_TRIALS, Probe, Searched, search


class Machine:
    """One of `limit` bytes, of which `fixed` and then `each` image take some.

    `curved` adds to large sizes, so much of the line's at its limit; what images take is a whole number of `step`s, and
    differs by up to the share `noise` from size to size, always alike at the same one, as fragments of a heap do.
    """

    def __init__(
        self,
        limit: int,
        fixed: int,
        each: int,
        *,
        curved: float = 0.0,
        step: int = 1,
        noise: float = 0.0,
        seed: int = 0,
        tells: bool = True,
        images: int = 0,
    ) -> None:
        self.limit, self.fixed, self.each, self.curved, self.tells = limit, fixed, each, curved, tells
        self.step, self.noise, self.seed, self.images = step, noise, seed, images
        self.tried: list[int] = []

    def used(self, size: int, *, noisy: bool = True) -> int:
        at_limit = size / max(1.0, (self.limit - self.fixed) / self.each)
        straight = self.each * size * (1 + self.curved * min(at_limit, 2.0))
        noise = random.Random(f"{self.seed} {size}").uniform(-self.noise, self.noise) if noisy else 0.0
        return round(self.fixed + math.ceil(straight / self.step) * self.step * (1 + noise))

    def limits(self, unit: int, most: int) -> tuple[int, int]:
        """The largest size up to which every size fits, and the largest that would without noise."""
        sizes = range(unit, most + 1, unit)
        surely = next((size for size in sizes if self.used(size) > self.limit), most // unit * unit + unit) - unit
        return surely, max((size for size in sizes if self.used(size, noisy=False) <= self.limit), default=0)

    def probe(self, size: int) -> Probe | None:
        self.tried.append(size)
        if self.used(size) > self.limit:
            return None
        memory = {"memory": (self.used(size) if self.tells else 0, self.limit)}
        return Probe(size / (size + 20), memory, self.images)


def searched(machine: Machine, unit: int = 1, most: int = 4000) -> Searched:
    found = search(machine.probe, unit=unit, most=most)
    assert len(machine.tried) <= MOST_TRIALS
    assert machine.tried == list(dict.fromkeys(machine.tried))
    assert found.largest % unit == 0
    assert not found.largest or found.trials[found.largest] is not None
    return found


LINES = {
    "limit": st.integers(50_000, 3_000_000),
    "share": st.floats(0.0, 0.9),
    "each": st.integers(300, 20_000),
    "unit": st.sampled_from([1, 2, 3, 8]),
}


@given(**LINES, curved=st.sampled_from([0.0, 0.1, 0.2]))
def test_that_the_found_size_is_within_a_twentieth_of_the_limit_after_eight_trials_at_most(
    limit: int, share: float, each: int, unit: int, curved: float
) -> None:
    machine = Machine(limit, round(share * limit), each, curved=curved)
    found = searched(machine, unit)
    true, _ = machine.limits(unit, 4000)
    assert 0.95 * true - unit < found.largest <= true
    failed = min((size for size, tried in found.trials.items() if tried is None), default=math.inf)
    assert found.largest <= max(unit, 0.99 * failed)  # with room to spare, even where the trials run out


@settings(max_examples=40)
@given(
    **LINES,
    curved=st.sampled_from([-0.1, 0.0, 0.1, 0.2]),
    noise=st.sampled_from([0.0, 0.02]),
    steps=st.sampled_from([100, 40]),
    seed=st.integers(0, 1000),
)
@example(limit=1_011_400, share=0.5, each=300, unit=2, curved=0.1, noise=0.0, steps=100, seed=0)
def test_that_noise_of_two_hundredths_and_steps_in_the_memory_do_not_mislead(
    *, limit: int, share: float, each: int, unit: int, curved: float, noise: float, steps: int, seed: int
) -> None:
    fixed = round(share * limit)
    step = max(1, (limit - fixed) // steps)
    machine = Machine(limit, fixed, each, curved=curved, step=step, noise=noise, seed=seed)
    found = searched(machine, unit, 20_000)
    surely, in_the_mean = machine.limits(unit, 20_000)
    assert 0.95 * surely - unit < found.largest <= in_the_mean / (1 - noise) + unit * bool(noise)
    failed = min((size for size, tried in found.trials.items() if tried is None), default=math.inf)
    assert len(machine.tried) == MOST_TRIALS or found.largest > 0.95 * failed - 2 * unit


@pytest.mark.parametrize(("limit", "most_trials"), [(4_000_000, 6), (800_000, 6), (400_000, 5)])
def test_that_where_the_line_is_right_two_trials_at_its_end_prove_it(limit: int, most_trials: int) -> None:
    machine = Machine(limit, 100_000, 1000)
    full = (limit - 100_000) // 1000
    searched(machine, most=5000)
    near = [size for size in machine.tried if size > 0.6 * full]
    assert [size <= full for size in near] == [True, False]
    assert len(machine.tried[: machine.tried.index(near[-1]) + 1]) <= most_trials


@pytest.mark.parametrize("true", [740, 850, 930])
def test_that_a_limit_below_the_foreseen_one_is_found(true: int) -> None:
    class Misled(Machine):
        def probe(self, size: int) -> Probe | None:
            probe = super().probe(size)
            return probe if size <= true else None

    found = searched(Misled(1_000_000, 0, 1000))
    assert 0.95 * true <= found.largest <= true


@pytest.mark.parametrize("limit", [30_000, 400_000, 1_000_000])
def test_that_a_limit_is_found_that_no_measure_foretells(limit: int) -> None:
    machine = Machine(limit, 0, 1000, tells=False)
    found = searched(machine)
    assert 0.7 * limit / 1000 <= found.largest <= limit / 1000


def test_that_the_dataset_is_the_limit_where_all_of_it_fits() -> None:
    found = searched(Machine(10**9, 0, 1000), most=350)
    assert found.largest == 350


@pytest.mark.parametrize("most", [3, 4, 17, 350])
def test_that_all_of_the_dataset_fits_where_memory_does_not_grow(most: int) -> None:
    assert searched(Machine(10**9, 0, 1000, tells=False), most=most).largest == most


@pytest.mark.parametrize(("images", "unit", "largest"), [(244, 1, 244), (244, 8, 240), (3, 1, 4), (5000, 1, 996)])
def test_that_no_size_above_the_training_split_is_tried(images: int, unit: int, largest: int) -> None:
    machine = Machine(1_000_000, 0, 1000, images=images)
    found = searched(machine, unit)
    assert 0.95 * largest <= found.largest <= largest
    assert max(machine.tried) <= max(4 * unit, images)
    assert (found.largest == found.most) == (images < 1000)


def test_that_a_size_for_which_there_is_no_time_ends_the_search_and_is_told() -> None:
    machine = Machine(10**9, 0, 1000)
    found = search(machine.probe, unit=1, most=4096, in_time=lambda size: size <= 100)
    assert (found.largest, found.untried) == (16, 256)
    assert max(machine.tried) <= 100


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
