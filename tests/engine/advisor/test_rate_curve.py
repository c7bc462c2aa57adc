"""Learning rates suggested for synthetic loss curves."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from engine.advisor.rate_curve import Curve, RunningLoss, find_longest_fall, rate_at, running_decay, suggest_rate
from engine.contract.advice import RateFound

STEPS = 100
FIRST_FALL, LOWEST = 1e-4, 1e-2


def suggest_rate_for_losses(losses: list[float]) -> RateFound:
    """Return the finder's result for a curve with these losses."""
    return suggest_rate(Curve(tuple(losses), STEPS, diverged=len(losses) < STEPS))


def compute_loss(step: int) -> float:
    """Return the loss at a step.

    It falls from 3 to 2 between the learning rates `FIRST_FALL` and `LOWEST`, and then rises again.
    """
    decades = math.log10(rate_at(step, STEPS) / FIRST_FALL)
    return 3 - max(0.0, min(decades, 4 - decades) / 2)


def test_rate_rises_exponentially() -> None:
    rates = [rate_at(step, STEPS) for step in range(STEPS)]
    assert (rates[0], rates[-1]) == (pytest.approx(1e-7), pytest.approx(10.0))
    assert all(b / a == pytest.approx(1e8 ** (1 / 99)) for a, b in itertools.pairwise(rates))


def test_running_loss_has_bias_correction() -> None:
    running = RunningLoss(0.98)
    assert running.add(3.0) == pytest.approx(3.0)
    assert running.add(1.0) == pytest.approx((0.98 * 3.0 + 1.0) / 1.98)
    assert running.best == running.value
    assert not running.has_diverged


def test_running_loss_diverges_if_high_or_not_finite() -> None:
    running = RunningLoss(0.0)
    running.add(1.0)
    running.add(4.0)
    assert not running.has_diverged
    running.add(4.01)
    assert running.has_diverged
    running = RunningLoss(0.98)
    running.add(math.nan)
    assert running.has_diverged


def test_running_decay_spans_same_decades() -> None:
    assert running_decay(100) == pytest.approx(0.98)
    assert running_decay(50) == pytest.approx(0.98**2)


@pytest.mark.parametrize(
    ("losses", "valley"),
    [
        ([9, 8, 7, 6, 5, 4, 3, 2, 1], (0, 8)),  # all of it
        (
            [1, 2, 9, 8, 7, 6, 5, 9, 8],
            (1, 5),
        ),  # the longer of two falls, from the point before it, as in fastai
        ([5, 6, 4, 7, 3, 8, 2], (2, 4)),  # a noisy fall, 5 4 3 2, which ends at the last step
        ([1, 2, 3], (0, 0)),
        ([2, 2, 2], (0, 0)),
    ],
)
def test_longest_fall(losses: list[float], valley: tuple[int, int]) -> None:
    start, length = find_longest_fall([float(loss) for loss in losses])
    if valley[1] == 0:
        assert length == 0
    else:
        assert (start, length) == (valley[0], valley[1])


def test_curve_of_first_steps_and_skipped_ones_has_no_valley() -> None:
    found = suggest_rate(Curve((*[1.0] * 10, 0.5, 0.1, 0.1, 0.1, 0.1), steps=STEPS, diverged=True))
    assert found.suggestion is not None
    assert found.valley is None


def test_suggestion_is_tenth_of_best_rate() -> None:
    found = suggest_rate_for_losses([compute_loss(step) for step in range(STEPS)])
    assert found.suggestion == pytest.approx(LOWEST / 10, rel=0.2)
    assert found.steepest is not None
    assert FIRST_FALL * 2 < found.steepest < LOWEST / 2
    assert "a tenth of it" in found.why
    assert not found.remedy


def test_smoothing_does_not_shift_minimum() -> None:
    # A running average would find the minimum loss about a decade too late.
    found = suggest_rate_for_losses([compute_loss(step) for step in range(STEPS)])
    lowest = min(found.points, key=lambda point: point.smoothed)
    assert lowest.rate == pytest.approx(LOWEST, rel=0.2)


def test_divergence_does_not_hide_fall() -> None:
    calm = [compute_loss(step) for step in range(STEPS)]
    wild = [loss if rate_at(step, STEPS) < 5e-2 else 1e6 for step, loss in enumerate(calm)]
    found = suggest_rate_for_losses(wild)
    assert found.suggestion == pytest.approx(suggest_rate_for_losses(calm).suggestion, rel=0.5)


def test_valley_equals_fastai() -> None:
    risen = [3.0 + 0.01 * step for step in range(40)]
    fallen = [3.4 - 0.05 * step for step in range(30)]
    found = suggest_rate_for_losses([*risen, *fallen, *(2.0 + 0.2 * step for step in range(30))])
    assert found.valley == pytest.approx(0.004037017)  # computed by `valley` of fastai 2.8.12 from its running average


@pytest.mark.parametrize("seed", range(20))
def test_noise_gives_no_suggestion(seed: int) -> None:
    noise = random.Random(seed)
    found = suggest_rate_for_losses([2.0 + noise.gauss(0, 0.3) for _ in range(STEPS)])
    assert found.suggestion is None
    assert "does not fall" in found.why
    assert "larger batch size" in found.remedy
    assert len(found.points) == STEPS


@pytest.mark.parametrize("seed", range(20))
def test_noise_moves_suggestion_by_under_half_a_decade(seed: int) -> None:
    noise = random.Random(seed)
    found = suggest_rate_for_losses([compute_loss(step) + noise.gauss(0, 0.1) for step in range(STEPS)])
    quiet = suggest_rate_for_losses([compute_loss(step) for step in range(STEPS)])
    assert found.suggestion is not None
    assert quiet.suggestion is not None
    assert abs(math.log10(found.suggestion / quiet.suggestion)) < 0.5


@pytest.mark.parametrize("losses", [[2.0] * STEPS, [2.0 - 1e-4 * step for step in range(STEPS)]])
def test_constant_loss_gives_no_suggestion(losses: list[float]) -> None:
    assert suggest_rate_for_losses(losses).suggestion is None


def test_early_nan_gives_no_suggestion() -> None:
    found = suggest_rate_for_losses([2.0, math.nan])
    assert found.suggestion is None
    assert "NaN or infinite at step 2, at a learning rate of 1.2e-07" in found.why
    assert "fp32" in found.remedy
    assert len(found.points) == 1


def test_early_divergence_gives_no_suggestion() -> None:
    found = suggest_rate_for_losses([1.0, 4.5])
    assert found.suggestion is None
    assert "within 2 steps" in found.why


def test_late_nan_gives_suggestion() -> None:
    losses = [3.0] * 20 + [3.0 - 0.1 * step for step in range(1, 21)] + [math.nan]
    found = suggest_rate_for_losses(losses)
    assert found.suggestion is not None
    assert all(math.isfinite(point.loss) for point in found.points)
