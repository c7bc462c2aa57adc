"""Which ways stay in the running, and when it is known which is the fastest."""

from __future__ import annotations

from engine.advisor.advice.candidates import Way
from engine.advisor.advice.measured import Measured
from engine.advisor.advice.ranking import Tried, drop_slow, half_width, is_settled, ranked
from engine.contract.job import Job


def tried(name: str, *steps: float, trials: int = 2, load_rate: float | None = None, device: str = "cpu") -> Tried:
    measured = Measured(step_s=steps, memory={}, worked_s=1.0, load_rate=load_rate)
    way = Way(Job(batch_size=32, devices=(device,)), name)
    return Tried(way, "measured" if steps else "too_large", list(steps), measured, trials=trials)


def test_that_those_a_third_slower_are_dropped_and_say_by_how_much() -> None:
    fast, near, slow = (
        tried("fast", *[0.1, 0.101] * 5),
        tried("near", *[0.102, 0.1] * 5),
        tried("slow", *[0.2, 0.2] * 5),
    )
    assert drop_slow([slow, near, fast]) == [near, fast]
    assert slow.state == "slower"
    assert "50 % slower than fast" in slow.why
    assert is_settled([near, fast])  # as a tie


def test_that_a_single_trial_drops_only_what_is_both_much_and_surely_slower() -> None:
    fast = tried("fast", *[0.1, 0.101] * 5, trials=1)
    little = tried("little", *[0.12, 0.121] * 5, trials=1)
    noisy = tried("noisy", 0.1, 0.19, 0.14, 0.05, trials=1)
    assert drop_slow([fast, little, noisy]) == [fast, little, noisy]
    assert not is_settled([fast, little])


def test_that_a_wide_interval_leaves_the_order_open_and_a_held_up_step_does_not_widen_it() -> None:
    assert half_width([0.1, 0.15, 0.12, 0.18]) > 0.02
    assert half_width([0.1, 0.101] * 10 + [2.0]) < 0.005
    assert not is_settled([tried("a", 0.1, 0.15, 0.12), tried("b", 0.11, 0.14, 0.13)])


def test_that_data_are_read_beside_a_gpus_step_and_in_the_time_of_a_cpus() -> None:
    assert tried("cpu", 0.1, load_rate=320).step_s == 0.2
    assert tried("gpu", 0.1, load_rate=320, device="GPU-1").step_s == 0.1
    assert tried("starved", 0.1, load_rate=160, device="GPU-1").step_s == 0.2


def test_that_what_does_not_fit_comes_last() -> None:
    names = [each.way.name for each in ranked([tried("too large"), tried("slow", 0.2), tried("fast", 0.1)])]
    assert names == ["fast", "slow", "too large"]
