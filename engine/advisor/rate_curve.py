"""What a curve of losses over rising learning rates suggests: a tenth of the rate where the loss is least, the rule of
fastai's `minimum` (fastai/callback/schedule.py, 2.8), on a curve that smoothing does not shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from engine.contract.finders import RateFound, RatePoint

FIRST_RATE, LAST_RATE = 1e-7, 10.0
STEPS = 100
RUNNING = 0.98
"""The decay per step of the running average that ends the training, for `STEPS` steps, and by which fastai reads its
valley."""
DIVERGED = 4.0
"""The search ends when the running average is this many times its best value."""
WIDTH = 0.25
"""The standard deviation, in decades of the rate, of the Gaussian that smooths the curve. Unlike a running average it
does not shift the fall to higher rates."""
CAP = 2.0
"""Losses are clipped at this many times the first ones, so that a divergence does not raise the curve before it."""
FIRST = 0.1
"""The share of the planned steps that count as the first ones, at rates too low to change anything."""
LEAST_POINTS = 5
FALLS = 0.02
"""A loss that falls by no more than this share of the first ones counts as not falling."""
CERTAIN = 4.0
"""A fall of no more standard errors is taken for noise: the least of a hundred points that do not fall at all lies
about two and a half below their mean."""
VALLEY_SKIPS = 5
"""The last steps that fastai's valley leaves out, at which the loss may rise steeply."""

CURVE_FILE = "curve.msgpack"
"""The file in the run folder to which rank 0 writes its `Curve`."""


class Curve(msgspec.Struct, frozen=True):
    """The losses of the steps made, of so many planned ones."""

    losses: tuple[float, ...]
    steps: int
    diverged: bool


class RunningLoss:
    """An exponential moving average, corrected for its beginning at 0 (Kingma and Ba 2014, section 3)."""

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._average = 0.0
        self._count = 0
        self.value = math.nan
        self.best = math.inf

    def add(self, loss: float) -> float:
        """The average with `loss` in it."""
        self._count += 1
        self._average = self._decay * self._average + (1 - self._decay) * loss
        self.value = self._average / (1 - self._decay**self._count)
        self.best = min(self.best, self.value)
        return self.value

    @property
    def diverged(self) -> bool:
        """Whether it is no number any more, or far above its best."""
        return not math.isfinite(self.value) or self.value > DIVERGED * self.best


def rate_at(step: int, steps: int) -> float:
    """The learning rate of `step`, from 0, of so many."""
    return FIRST_RATE * (LAST_RATE / FIRST_RATE) ** (step / (steps - 1))


def running_decay(steps: int) -> float:
    """The decay by which a curve of so many steps is averaged over as many decades of the rate as one of `STEPS`."""
    return float(RUNNING ** (STEPS / steps))


def read_curve(curve: Curve) -> RateFound:
    """What `curve` suggests."""
    finite = next(
        (position for position, loss in enumerate(curve.losses) if not math.isfinite(loss)), len(curve.losses)
    )
    losses = np.array(curve.losses[:finite])
    decades = np.log10([rate_at(position, curve.steps) for position in range(finite)])
    begin = int(FIRST * curve.steps)
    first = losses[:begin].mean() if finite else math.nan
    kernel = np.exp(-0.5 * ((decades[:, None] - decades) / WIDTH) ** 2)
    kernel /= kernel.sum(1, keepdims=True)
    counted = np.minimum(losses, CAP * first)
    smoothed = kernel @ counted
    points = tuple(
        RatePoint(rate_at(position, curve.steps), loss, smooth)
        for position, (loss, smooth) in enumerate(zip(losses.tolist(), smoothed.tolist(), strict=True))
    )
    found = RateFound(points=points, suggestion=None, why="", smoothing=WIDTH, diverged=curve.diverged)
    if finite < begin + LEAST_POINTS:
        why, remedy = _too_short(curve, finite)
        return msgspec.structs.replace(found, why=why, remedy=remedy)
    least = begin + int(smoothed[begin:].argmin())
    # The standard error of the fall, by how far the losses up to the least one lie from the smoothed curve.
    noise = (counted - smoothed)[: least + 1].std() * math.sqrt(1 / begin + np.square(kernel[least]).sum())
    if first - smoothed[least] <= max(FALLS * first, CERTAIN * noise):
        why, remedy = NEVER_FALLS
        return msgspec.structs.replace(found, why=why, remedy=remedy)
    steepest = begin + int(np.gradient(smoothed, decades)[begin : least + 1].argmin())
    suggestion = points[least].rate / 10
    why = (
        f"The smoothed loss is lowest at a learning rate of {shown(points[least].rate)}; a tenth of it, "
        f"{shown(suggestion)}, keeps a distance from where the loss rises again."
    )
    return msgspec.structs.replace(
        found,
        suggestion=suggestion,
        why=why,
        steepest=points[steepest].rate,
        valley=_valley(curve),
    )


NEVER_FALLS = (
    "The loss does not fall at any learning rate, so the curve suggests none.",
    "Try a larger batch size, which makes the loss less noisy, or another seed, or check that the labels "
    "match the images.",
)


def _valley(curve: Curve) -> float | None:
    """What fastai suggests (`valley` of fastai/callback/schedule.py, 2.8), by its own running average; None where that
    never falls.
    """
    running = RunningLoss(running_decay(curve.steps))
    averages = [running.add(loss) for loss in curve.losses]
    skipped = int(FIRST * curve.steps)
    start, length = longest_fall([each for each in averages[skipped:-VALLEY_SKIPS] if math.isfinite(each)])
    # A third of the way, and half a third more, each rounded down.
    return rate_at(skipped + start + length // 3 + length // 6, curve.steps) if length else None


def longest_fall(losses: Sequence[float]) -> tuple[int, int]:
    """The first index and the length of the longest valley, in steps.

    As fastai's `valley`: the longest falling subsequence of `losses`, the earliest of several, is taken to lie in one
    piece before its end. Where nothing falls the length is 0.
    """
    lengths: list[int] = []
    for position, loss in enumerate(losses):
        lengths.append(1 + max((lengths[before] for before in range(position) if losses[before] > loss), default=0))
    longest = max(lengths)
    end = lengths.index(longest)
    length = min(longest, end) if longest > 1 else 0
    return end - length, length


def shown(rate: float) -> str:
    """A learning rate as people read it: 0.0013, 2.5e-05."""
    return f"{rate:.2g}"


def _too_short(curve: Curve, finite: int) -> tuple[str, str]:
    """Why a curve of which so few first losses are finite suggests nothing, and what to do."""
    if finite == len(curve.losses):
        return (
            f"The loss rose to {DIVERGED:g} times its best value within {len(curve.losses)} steps, at rates "
            "too low to change anything: it varies more from batch to batch than it could fall.",
            "Try a larger batch size, or check that the labels match the images.",
        )
    return (
        f"The loss was NaN or infinite at step {finite + 1}, at a learning rate of "
        f"{shown(rate_at(finite, curve.steps))}, too early for a suggestion.",
        "Try fp32 if another precision was chosen, or check images, labels and weights for NaN and infinite values.",
    )
