"""Search for the largest batch size on simulated machines."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.advisor.batch_search import MAX_TRIALS, Probe, SearchResult, search


class Machine:
    """Simulated machine with `limit` bytes of memory: `fixed` bytes are in use, and an image takes `each` bytes.

    If `curved` isn't 0, an image takes more memory in a larger batch: `each * (1 + curved * n / n_limit)` bytes in a
    batch of n images, where n_limit is the number of images that would fit if each took `each` bytes. Memory is
    allocated in units of `step` bytes. `noise` is the relative variation of memory between batch sizes, which is the
    same whenever a size is repeated.
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
        reports_memory: bool = True,
        images: int = 0,
    ) -> None:
        self.limit, self.fixed, self.each, self.curved, self.has_data = limit, fixed, each, curved, reports_memory
        self.step, self.noise, self.seed, self.images = step, noise, seed, images
        self.tried: list[int] = []

    def used(self, size: int, *, noisy: bool = True) -> int:
        at_limit = size / max(1.0, (self.limit - self.fixed) / self.each)
        straight = self.each * size * (1 + self.curved * min(at_limit, 2.0))
        noise = random.Random(f"{self.seed} {size}").uniform(-self.noise, self.noise) if noisy else 0.0
        return round(self.fixed + math.ceil(straight / self.step) * self.step * (1 + noise))

    def compute_limits(self, unit: int, maximum: int) -> tuple[int, int]:
        """Return two limits for batch sizes, which are multiples of `unit` up to `maximum`.

        They are the largest size below the first one that doesn't fit, and the largest size that would fit without
        noise.
        """
        sizes = range(unit, maximum + 1, unit)
        surely = next((size for size in sizes if self.used(size) > self.limit), maximum // unit * unit + unit) - unit
        return surely, max((size for size in sizes if self.used(size, noisy=False) <= self.limit), default=0)

    def probe(self, size: int) -> Probe | None:
        self.tried.append(size)
        if self.used(size) > self.limit:
            return None
        used = self.used(size) if self.has_data else 0
        memory = {"memory": (used, self.limit), "memory of a larger device": (used, 2 * self.limit)}
        return Probe(size / (size + 20), memory, self.images)


def run_search(machine: Machine, unit: int = 1, maximum: int = 4000) -> SearchResult:
    found = search(machine.probe, unit=unit, maximum=maximum)
    assert len(machine.tried) <= MAX_TRIALS
    assert machine.tried == list(dict.fromkeys(machine.tried))
    assert list(found.trials) == sorted(machine.tried)
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
def test_search_is_within_five_percent_of_limit(limit: int, share: float, each: int, unit: int, curved: float) -> None:
    machine = Machine(limit, round(share * limit), each, curved=curved)
    found = run_search(machine, unit)
    true, _ = machine.compute_limits(unit, 4000)
    assert 0.95 * true - unit < found.largest <= true
    failed = min((size for size, tried in found.trials.items() if tried is None), default=math.inf)
    assert found.largest <= max(unit, 0.99 * failed)  # leaves a margin, even if the number of trials is exhausted


@settings(max_examples=40)
@given(
    **LINES,
    curved=st.sampled_from([-0.1, 0.0, 0.1, 0.2]),
    noise=st.sampled_from([0.0, 0.02]),
    steps=st.sampled_from([100, 40]),
    seed=st.integers(0, 1000),
)
@example(limit=1_011_400, share=0.5, each=300, unit=2, curved=0.1, noise=0.0, steps=100, seed=0)
def test_search_tolerates_noise_and_memory_steps(
    *, limit: int, share: float, each: int, unit: int, curved: float, noise: float, steps: int, seed: int
) -> None:
    fixed = round(share * limit)
    step = max(1, (limit - fixed) // steps)
    machine = Machine(limit, fixed, each, curved=curved, step=step, noise=noise, seed=seed)
    found = run_search(machine, unit, 20_000)
    surely, in_the_mean = machine.compute_limits(unit, 20_000)
    assert 0.95 * surely - unit < found.largest <= in_the_mean / (1 - noise) + unit * bool(noise)
    failed = min((size for size, tried in found.trials.items() if tried is None), default=math.inf)
    assert len(machine.tried) == MAX_TRIALS or found.largest > 0.95 * failed - 2 * unit


@pytest.mark.parametrize(("limit", "max_trials"), [(4_000_000, 6), (800_000, 6), (400_000, 5)])
def test_search_needs_two_final_trials_if_memory_is_linear(limit: int, max_trials: int) -> None:
    machine = Machine(limit, 100_000, 1000)
    full = (limit - 100_000) // 1000
    run_search(machine, maximum=5000)
    near = [size for size in machine.tried if size > 0.6 * full]
    assert [size <= full for size in near] == [True, False]
    assert len(machine.tried[: machine.tried.index(near[-1]) + 1]) <= max_trials


@pytest.mark.parametrize("true", [740, 850, 930])
def test_search_finds_limit_below_prediction(true: int) -> None:
    class Misled(Machine):
        def probe(self, size: int) -> Probe | None:
            probe = super().probe(size)
            return probe if size <= true else None

    found = run_search(Misled(1_000_000, 0, 1000))
    assert 0.95 * true <= found.largest <= true


def test_search_finds_size_below_any_that_fails() -> None:
    machine = Machine(1_000_000, 0, 1000, step=45_000, noise=0.05, seed=11)  # memory varies more than expected
    found = run_search(machine)
    failed = [size for size, tried in found.trials.items() if tried is None]
    assert 900 < found.largest < min(failed)
    assert any(tried for size, tried in found.trials.items() if size > min(failed))


@pytest.mark.parametrize("limit", [30_000, 400_000, 1_000_000])
def test_search_finds_unpredictable_limit(limit: int) -> None:
    machine = Machine(limit, 0, 1000, reports_memory=False)
    found = run_search(machine)
    assert 0.7 * limit / 1000 <= found.largest <= limit / 1000


def test_search_is_limited_by_dataset() -> None:
    found = run_search(Machine(10**9, 0, 1000), maximum=350)
    assert found.largest == 350


@pytest.mark.parametrize("maximum", [3, 4, 17, 350])
def test_search_reaches_maximum_with_constant_memory(maximum: int) -> None:
    assert run_search(Machine(10**9, 0, 1000, reports_memory=False), maximum=maximum).largest == maximum


@pytest.mark.parametrize(("images", "unit", "largest"), [(244, 1, 244), (244, 8, 240), (3, 1, 4), (5000, 1, 996)])
def test_search_tries_no_size_above_training_split(images: int, unit: int, largest: int) -> None:
    machine = Machine(1_000_000, 0, 1000, images=images)
    found = run_search(machine, unit)
    assert 0.95 * largest <= found.largest <= largest
    assert max(machine.tried) <= max(4 * unit, images)
    assert (found.largest == found.maximum) == (images < 1000)


def test_search_ends_at_size_without_time() -> None:
    machine = Machine(10**9, 0, 1000)
    found = search(machine.probe, unit=1, maximum=4096, has_time=lambda size: size <= 100)
    assert (found.largest, found.untried) == (16, 256)
    assert max(machine.tried) <= 100


def test_search_finds_nothing_if_nothing_fits() -> None:
    found = run_search(Machine(100, 1000, 1))
    assert found.largest == 0
    assert found.knee == 0
    assert set(found.trials.values()) == {None}


def test_knee_is_within_five_percent_of_larger_sizes() -> None:
    speeds = {4: 100.0, 16: 300.0, 64: 398.0, 256: 400.0, 512: 380.0}
    trials: dict[int, Probe | None] = {size: Probe(speed, {}) for size, speed in speeds.items()}
    assert SearchResult({**trials, 1024: None}, 512).knee == 64


def test_search_narrows_gap_below_knee() -> None:
    machine = Machine(1_000_000, 0, 1000)
    found = run_search(machine)
    fitting = sorted(size for size, tried in found.trials.items() if tried)
    before = fitting[fitting.index(found.knee) - 1]
    assert found.knee <= 4 * before
