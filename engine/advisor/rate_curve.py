"""Suggestion of a learning rate from the curve of losses at increasing rates.

The suggestion is a tenth of the rate with the smallest loss, as in fastai's `minimum` (fastai/callback/schedule.py,
2.8). The curve is smoothed without shifting its minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from engine.contract.advice import RateFound, RatePoint
from engine.system.format import counted

FIRST_RATE, LAST_RATE = 1e-7, 10.0
STEPS = 100
RUNNING = 0.98
"""Decay per step of the running average of the loss in a curve of `STEPS` steps.

The average decides when the training has diverged. fastai uses the same average for `valley`.
"""
DIVERGED = 4.0
"""Maximum ratio of the running average of the loss to its best value. If it is exceeded, the training ends."""
WIDTH = 0.25
"""Standard deviation, in decades of the rate, of the Gaussian that smooths the curve.

Unlike a running average, it does not shift the decrease of the loss to higher rates.
"""
CAP = 2.0
"""Maximum of losses in the smoothing, as a multiple of the first losses. Larger losses are cut off.

Otherwise, a divergence would raise the smoothed curve before it.
"""
WARM_UP = 0.1
"""Fraction of the planned steps that count as the first ones. Their rates are too low to change the loss."""
MIN_POINTS = 5
MIN_FALL = 0.02
"""Minimum decrease of the loss for a suggestion, as a fraction of the first losses."""
MIN_DEVIATIONS = 4.0
"""Minimum decrease of the loss for a suggestion, in standard errors. Smaller decreases are attributed to noise.

The minimum of a hundred points of a constant curve is about 2.5 standard errors below their mean.
"""
VALLEY_SKIPS = 5
"""Number of steps at the end that fastai excludes from the valley, since the loss may rise steeply there."""


class Curve(msgspec.Struct, frozen=True):
    """Losses of the completed steps in a training with increasing rates.

    `steps` is the number of planned steps. `diverged` is True if the training ended early because the loss exploded.
    """

    losses: tuple[float, ...]
    steps: int
    diverged: bool


class RunningLoss:
    """Exponential moving average of the loss with bias correction (Kingma and Ba 2014, section 3)."""

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._average = 0.0  # average without the correction
        self._count = 0  # number of losses
        self.value = math.nan  # corrected average
        self.best = math.inf  # lowest corrected average

    def add(self, loss: float) -> float:
        """Add a loss and return the updated average."""
        self._count += 1
        self._average = self._decay * self._average + (1 - self._decay) * loss
        self.value = self._average / (1 - self._decay**self._count)
        self.best = min(self.best, self.value)
        return self.value

    @property
    def has_diverged(self) -> bool:
        """True if the average is not finite, or is above `DIVERGED` times its best value."""
        return not math.isfinite(self.value) or self.value > DIVERGED * self.best


def rate_at(step: int, steps: int) -> float:
    """Return the learning rate for `step`, counted from 0, in a curve of `steps` steps."""
    return FIRST_RATE * (LAST_RATE / FIRST_RATE) ** (step / (steps - 1))


def running_decay(steps: int) -> float:
    """Return the decay per step of the running average for a curve of `steps` steps.

    The average then covers as many decades of the learning rate as in a curve of `STEPS` steps.
    """
    return float(RUNNING ** (STEPS / steps))


def suggest_rate(curve: Curve) -> RateFound:
    """Suggest a tenth of the rate with the lowest smoothed loss, or explain why the curve suggests no rate.

    The result also contains the rates that two other rules would suggest, for comparison.
    """
    # Number of steps before the first loss that is not finite.
    finite = next((step for step, loss in enumerate(curve.losses) if not math.isfinite(loss)), len(curve.losses))
    losses = np.array(curve.losses[:finite])
    rates = [rate_at(step, curve.steps) for step in range(finite)]
    decades = np.log10(rates)
    warm_up = int(WARM_UP * curve.steps)
    first = losses[:warm_up].mean() if finite else math.nan
    weights = _compute_smoothing_weights(decades)
    clipped = np.minimum(losses, CAP * first)
    smoothed = weights @ clipped
    points = tuple(map(RatePoint, rates, losses.tolist(), smoothed.tolist()))
    result = RateFound(points=points, suggestion=None, why="", smoothing=WIDTH, diverged=curve.diverged)
    if finite < warm_up + MIN_POINTS:
        why, remedy = _explain_short_curve(curve, finite)
        return msgspec.structs.replace(result, why=why, remedy=remedy)
    lowest = warm_up + int(smoothed[warm_up:].argmin())
    fall = first - smoothed[lowest]
    # Standard error of the fall, from the residuals up to the lowest loss.
    noise = (clipped - smoothed)[: lowest + 1].std() * math.sqrt(1 / warm_up + np.square(weights[lowest]).sum())
    if fall <= max(MIN_FALL * first, MIN_DEVIATIONS * noise):
        why, remedy = NEVER_FALLS
        return msgspec.structs.replace(result, why=why, remedy=remedy)
    steepest = warm_up + int(np.gradient(smoothed, decades)[warm_up : lowest + 1].argmin())
    suggestion = rates[lowest] / 10
    why = (
        f"The smoothed loss is lowest at a learning rate of {format_rate(rates[lowest])}; a tenth of it, "
        f"{format_rate(suggestion)}, keeps a distance to the rates at which the loss rises."
    )
    return msgspec.structs.replace(
        result, suggestion=suggestion, why=why, steepest=rates[steepest], valley=_find_valley(curve)
    )


def _compute_smoothing_weights(decades: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the weights [steps, steps] of a Gaussian that smooths the losses. Each row adds up to 1.

    `decades` [steps] are the decimal logarithms of the learning rates.
    """
    weights = np.exp(-0.5 * ((decades[:, None] - decades) / WIDTH) ** 2)
    return np.asarray(weights / weights.sum(1, keepdims=True))


NEVER_FALLS = (
    "The loss does not fall at any learning rate, so the curve suggests none.",
    "Try a larger batch size, which makes the loss less noisy, or another seed, or check that the labels "
    "match the images.",
)


def _find_valley(curve: Curve) -> float | None:
    """Return the rate that fastai would suggest, or None if the running average never falls.

    Source: `valley` in fastai/callback/schedule.py, version 2.8.
    """
    running = RunningLoss(running_decay(curve.steps))
    averages = [running.add(loss) for loss in curve.losses]
    skipped = int(WARM_UP * curve.steps)
    # Once an average is not finite, all later ones are not finite either, so this only shortens the end.
    finite = [average for average in averages[skipped:-VALLEY_SKIPS] if math.isfinite(average)]
    start, length = find_longest_fall(finite)
    # A third of the length, and half a third more, each rounded down.
    return rate_at(skipped + start + length // 3 + length // 6, curve.steps) if length else None


def find_longest_fall(losses: Sequence[float]) -> tuple[int, int]:
    """Return the first index and the length of the longest valley in `losses`, in steps.

    As in fastai's `valley`, this is the longest falling subsequence (the earliest if there are several). It is treated
    as if it were contiguous before its end. The length is 0 if no loss falls, or if there are no losses.
    """
    lengths: list[int] = []  # number of losses in the longest falling subsequence that ends at each index
    for index, loss in enumerate(losses):
        lengths.append(1 + max((lengths[before] for before in range(index) if losses[before] > loss), default=0))
    longest = max(lengths, default=0)
    if longest <= 1:
        return 0, 0
    end = lengths.index(longest)
    length = min(longest, end)  # if all losses up to `end` fall, there is one step less than losses
    return end - length, length


def format_rate(rate: float) -> str:
    """Format a learning rate with two significant digits: "0.0013", "2.5e-05"."""
    return f"{rate:.2g}"


def _explain_short_curve(curve: Curve, finite: int) -> tuple[str, str]:
    """Return the reason why a curve is too short for a suggestion, and a remedy.

    `finite` is the number of finite losses at the beginning of the curve.
    """
    if finite == len(curve.losses):
        return (
            f"The loss rose to {DIVERGED:g} times its best value within {counted(len(curve.losses), 'step')}, at rates "
            "too low to change anything: it varies more from batch to batch than it could fall.",
            "Try a larger batch size, or check that the labels match the images.",
        )
    return (
        f"The loss was NaN or infinite at step {finite + 1}, at a learning rate of "
        f"{format_rate(rate_at(finite, curve.steps))}, too early for a suggestion.",
        "Try fp32 if another precision was chosen, or check images, labels and weights for NaN and infinite values.",
    )
