"""What a curve of losses over rising learning rates suggests, as fastai reads it (fastai/callback/schedule.py, 2.8)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec

from engine.contract.finders import RateFound, RatePoint

FIRST_RATE, LAST_RATE = 1e-7, 10.0
STEPS = 100
SMOOTHING = 0.98
"""The decay per step of the smoothed loss, for `STEPS` steps."""
DIVERGED = 4.0
"""A smoothed loss so many times its best one ends the training."""
SKIPPED_FIRST, SKIPPED_LAST = 0.1, 5
"""What is not judged: a share of the planned steps at the beginning, where the smoothed loss is hardly more than the
first batches', and steps at the end, where it may rise steeply."""
LEAST_POINTS = 5
FALLS = 0.02
"""A smoothed loss that falls by no more than this share of itself is taken not to fall."""

CURVE_FILE = "curve.msgpack"
"""Where rank 0 leaves its `Curve`, in the folder of its run."""


class Curve(msgspec.Struct, frozen=True):
    """The steps made, of so many planned ones."""

    points: tuple[RatePoint, ...]
    steps: int
    diverged: bool


class SmoothedLoss:
    """An exponential moving average, corrected for its beginning at 0 (Kingma and Ba 2014, section 3)."""

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._average = 0.0
        self._count = 0
        self.value = math.nan
        self.best = math.inf

    def add(self, loss: float) -> float:
        """The smoothed loss with `loss` in it."""
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


def smoothing(steps: int) -> float:
    """The decay by which a curve of so many steps is smoothed over as many decades of the rate as one of `STEPS`."""
    return float(SMOOTHING ** (STEPS / steps))


def read_curve(points: Sequence[RatePoint], steps: int, *, diverged: bool) -> RateFound:
    """What `points`, the steps made of the `steps` planned ones, suggest."""
    found = RateFound(
        points=tuple(point for point in points if math.isfinite(point.smoothed)),
        suggestion=None,
        why="",
        smoothing=smoothing(steps),
        diverged=diverged,
    )
    judged = points[int(steps * SKIPPED_FIRST) : len(points) - SKIPPED_LAST]
    judged = [point for point in judged if math.isfinite(point.smoothed)]
    if len(judged) < LEAST_POINTS:
        why, remedy = _too_short(points)
        return msgspec.structs.replace(found, why=why, remedy=remedy)
    losses = [point.smoothed for point in judged]
    start, length = longest_fall(losses)
    end = start + length
    if losses[start] - losses[end] <= FALLS * abs(losses[start]):
        why, remedy = NEVER_FALLS
        return msgspec.structs.replace(found, why=why, remedy=remedy)
    # fastai's `valley`: a third of the way, and half a third more, each rounded down.
    suggestion = judged[start + int(length / 3) + int(length / 6)].rate
    slopes = [after - before for before, after in itertools.pairwise(losses)]
    why = (
        f"The smoothed loss falls for longest from a rate of {shown(judged[start].rate)} to {shown(judged[end].rate)}; "
        f"{shown(suggestion)} lies in the middle third of that stretch."
    )
    return msgspec.structs.replace(
        found,
        suggestion=suggestion,
        why=why,
        steepest=judged[slopes.index(min(slopes))].rate,
        minimum_tenth=judged[losses.index(min(losses))].rate / 10,
    )


NEVER_FALLS = (
    "The loss never falls at any learning rate, so that the curve suggests none.",
    "Try a larger batch size, which makes the losses less noisy, another seed, or look whether the labels fit the images.",
)


def longest_fall(losses: Sequence[float]) -> tuple[int, int]:
    """The first place and the length of the longest valley, in steps.

    As fastai's `valley`: the longest falling subsequence of `losses`, the earliest of several, is taken to lie in one
    piece before its end. Where nothing falls the length is 0.
    """
    lengths: list[int] = []
    for place, loss in enumerate(losses):
        lengths.append(1 + max((lengths[before] for before in range(place) if losses[before] > loss), default=0))
    longest = max(lengths)
    end = lengths.index(longest)
    length = min(longest, end) if longest > 1 else 0
    return end - length, length


def shown(rate: float) -> str:
    """A learning rate as people read it: 0.0013, 2.5e-05."""
    return f"{rate:.2g}"


def _too_short(points: Sequence[RatePoint]) -> tuple[str, str]:
    """Why a curve that broke off so early suggests nothing, and what to do."""
    bad = next((place for place, point in enumerate(points) if not math.isfinite(point.loss)), None)
    if bad is None:
        return (
            f"The loss rose to {DIVERGED:g} times its best within {len(points)} steps, at rates that change next to nothing: "
            "it differs more from batch to batch than it could fall.",
            "Try a larger batch size, or look whether the labels fit the images.",
        )
    return (
        f"The loss was NaN or infinite at step {bad + 1}, at a rate of {shown(points[bad].rate)}, too early for a suggestion.",
        "Try fp32 if another precision was chosen, or look for images, labels or weights that are not finite.",
    )
