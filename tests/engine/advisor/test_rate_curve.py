"""What a curve of losses suggests, with figures worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest

from engine.advisor.rate_curve import SmoothedLoss, longest_fall, rate_at, read_curve, smoothing
from engine.contract.finders import RateFound, RatePoint

STEPS = 100


def curve(losses: list[float]) -> RateFound:
    """What is read from these smoothed losses, the steps from the first on."""
    points = [RatePoint(rate_at(place, STEPS), loss, loss) for place, loss in enumerate(losses)]
    return read_curve(points, STEPS, diverged=len(losses) < STEPS)


def test_that_rates_rise_by_the_same_factor_from_a_ten_millionth_to_ten() -> None:
    rates = [rate_at(place, STEPS) for place in range(STEPS)]
    assert (rates[0], rates[-1]) == (pytest.approx(1e-7), pytest.approx(10.0))
    assert all(b / a == pytest.approx(1e8 ** (1 / 99)) for a, b in itertools.pairwise(rates))


def test_that_the_smoothed_loss_is_corrected_for_its_beginning() -> None:
    smooth = SmoothedLoss(0.98)
    assert smooth.add(3.0) == pytest.approx(3.0)
    assert smooth.add(1.0) == pytest.approx((0.98 * 3.0 + 1.0) / 1.98)
    assert smooth.best == smooth.value
    assert not smooth.diverged


def test_that_a_training_diverges_at_four_times_its_best_loss_and_where_it_is_no_number() -> None:
    smooth = SmoothedLoss(0.0)
    smooth.add(1.0)
    smooth.add(4.0)
    assert not smooth.diverged
    smooth.add(4.01)
    assert smooth.diverged
    smooth = SmoothedLoss(0.98)
    smooth.add(math.nan)
    assert smooth.diverged


def test_that_fewer_steps_are_smoothed_over_as_many_decades() -> None:
    assert smoothing(100) == pytest.approx(0.98)
    assert smoothing(50) == pytest.approx(0.98**2)


@pytest.mark.parametrize(
    ("losses", "valley"),
    [
        ([9, 8, 7, 6, 5, 4, 3, 2, 1], (0, 8)),  # all of it
        (
            [1, 2, 9, 8, 7, 6, 5, 9, 8],
            (1, 5),
        ),  # of two falls the longer one; as fastai counts, from the point before it
        ([5, 6, 4, 7, 3, 8, 2], (2, 4)),  # a fall with noise in it: 5 4 3 2, which ends at the last place
        ([1, 2, 3], (0, 0)),
        ([2, 2, 2], (0, 0)),
    ],
)
def test_that_the_longest_fall_is_found(losses: list[float], valley: tuple[int, int]) -> None:
    start, length = longest_fall([float(loss) for loss in losses])
    if valley[1] == 0:
        assert length == 0
    else:
        assert (start, length) == (valley[0], valley[1])


def test_that_the_suggestion_lies_in_the_middle_third_of_the_fall() -> None:
    # Even for 40 steps, falling for 30, then rising.
    losses = [3.0] * 40 + [3.0 - 0.05 * step for step in range(1, 31)] + [1.6 + 0.2 * step for step in range(30)]
    found = curve(losses)
    # The fall has the 31 points from 39 to 69: a third of 31, and a sixth, from the point before it.
    assert found.suggestion == pytest.approx(rate_at(38 + 10 + 5, STEPS))
    assert "middle third" in found.why
    assert found.minimum_tenth == pytest.approx(rate_at(69, STEPS) / 10)
    assert not found.remedy


def test_that_the_steepest_fall_and_a_tenth_of_the_minimum_are_told_too() -> None:
    losses = [3.0] * 30 + [2.9, 2.8, 2.0, 1.9, 1.8, 1.7, 1.6] + [1.7] * 20
    found = curve(losses)
    assert found.steepest == pytest.approx(rate_at(31, STEPS))
    assert found.minimum_tenth == pytest.approx(rate_at(36, STEPS) / 10)


@pytest.mark.parametrize("losses", [[2.0] * STEPS, [2.0 - 1e-4 * step for step in range(STEPS)]])
def test_that_a_loss_that_never_falls_suggests_nothing_and_says_what_to_do(losses: list[float]) -> None:
    found = curve(losses)
    assert found.suggestion is None
    assert "never falls" in found.why
    assert "larger batch size" in found.remedy
    assert len(found.points) == STEPS


def test_that_a_loss_that_is_no_number_at_once_is_told_with_step_rate_and_remedy() -> None:
    found = curve([2.0, math.nan])
    assert found.suggestion is None
    assert "NaN or infinite at step 2, at a rate of 1.2e-07" in found.why
    assert "fp32" in found.remedy
    assert len(found.points) == 1


def test_that_losses_too_noisy_at_the_beginning_are_told_of() -> None:
    found = curve([1.0, 4.5])
    assert found.suggestion is None
    assert "within 2 steps" in found.why


def test_that_a_curve_that_ends_in_nan_is_judged_up_to_there() -> None:
    losses = [3.0] * 20 + [3.0 - 0.1 * step for step in range(1, 21)] + [math.nan]
    found = curve(losses)
    assert found.suggestion is not None
    assert all(math.isfinite(point.loss) for point in found.points)
