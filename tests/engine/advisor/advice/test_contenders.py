"""Ranking of the setups that the advisor has measured."""

from __future__ import annotations

import pytest

from engine.advisor.advice.contenders import Contender, drop_slow, half_width, is_ranking_certain, rank
from engine.advisor.advice.setups import Setup
from engine.advisor.advice.trial_files import RankMeasurements
from engine.checks.findings.ranking import TIE
from engine.contract.job import Job


def contender(
    name: str, *steps: float, trials: int = 2, load_rate: float | None = None, device: str = "cpu"
) -> Contender:
    measured = RankMeasurements(step_s=steps, memory={}, worked_s=1.0, load_rate=load_rate)
    setup = Setup(Job.from_fields(batch_size=32, devices=(device,)), name)
    return Contender(setup, "measured" if steps else "too_large", list(steps), measured, trials=trials)


def test_drop_slow_after_several_trials() -> None:
    fast, near, slow = (
        contender("fast", *[0.1, 0.101] * 5),
        contender("near", *[0.102, 0.1] * 5),
        contender("slow", *[0.2, 0.2] * 5),
    )
    assert drop_slow([slow, near, fast]) == [near, fast]
    assert slow.state == "slower"
    assert "50% slower than fast" in slow.why
    assert is_ranking_certain([near, fast])  # counts as a tie


def test_drop_slow_after_single_trial() -> None:
    fast = contender("fast", *[0.1, 0.101] * 5, trials=1)
    little = contender("little", *[0.12, 0.121] * 5, trials=1)
    noisy = contender("noisy", 0.1, 0.19, 0.15, 0.17, trials=1)
    assert drop_slow([fast, little, noisy]) == [fast, little, noisy]
    assert not is_ranking_certain([fast, little])
    noisy.trials = 2
    assert drop_slow([fast, little, noisy]) == [fast, little]


@pytest.mark.parametrize(("half_widths", "certain"), [((0.3, 0.4), True), ((0.3, 0.6), False), ((0.9, 0.4), False)])
def test_is_ranking_certain_once_both_are_within_half_a_tie(half_widths: tuple[float, float], certain: bool) -> None:
    """Compare two contenders whose confidence intervals have the half-widths `half_widths`, as fractions of `TIE`.

    Contenders whose step times differ by less than `TIE` count as equally fast.
    """
    pair = []
    for fraction in half_widths:
        spread = next(each / 1e5 for each in range(1, 10_000) if half_width(steps(each / 1e5)) >= fraction * TIE)
        pair.append(contender("one", *steps(spread)))
    assert is_ranking_certain(pair) is certain


def steps(spread: float) -> list[float]:
    return [1 - spread, 1 + spread] * 10


def test_half_width_ignores_outliers() -> None:
    assert half_width([0.1, 0.15, 0.12, 0.18]) > 0.02
    assert half_width([0.1, 0.101] * 10 + [2.0]) < 0.005
    assert not is_ranking_certain([contender("a", 0.1, 0.15, 0.12), contender("b", 0.11, 0.14, 0.13)])


def test_step_waits_for_loading_on_cpu() -> None:
    assert contender("cpu", 0.1, load_rate=320).step_s == 0.2
    assert contender("gpu", 0.1, load_rate=640, device="GPU-1").step_s == 0.1
    starved = contender("starved", 0.1, load_rate=160, device="GPU-1")
    assert (starved.step_s, starved.speed) == (0.2, pytest.approx((32 / 0.2, 32 / 0.225, 32 / 0.175)))


def test_rank_puts_unmeasured_last() -> None:
    names = [each.setup.name for each in rank([contender("too large"), contender("slow", 0.2), contender("fast", 0.1)])]
    assert names == ["fast", "slow", "too large"]
