"""What the steps gave since it was last told, read from the device only when it is asked for."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.strategies.base import StepResult


class NotFinite(Exception):
    """The loss became NaN or infinite; the text names the step."""

    def __init__(self, step: int, what: str = "The loss") -> None:
        super().__init__(
            f"{what} became NaN or infinite at step {step}. The last good checkpoint is kept. "
            "Try a lower learning rate, or fp32."
        )
        self.step = step


@dataclass(frozen=True, slots=True)
class Figures:
    """Sums over `steps` steps of this rank. `first_bad` is the first step whose loss was not finite."""

    steps: int
    loss: float
    correct: float
    pictures: float
    wait_s: float
    seconds: float
    first_bad: int | None


class Tally:
    """Keeps the results of steps as they are, so that a step never waits for its device."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begins anew, with nothing told and the clock at zero."""
        self._results: list[StepResult] = []
        self._steps = 0
        self._wait_s = 0.0
        self._begun = time.perf_counter()

    def add(self, result: StepResult, wait_s: float) -> None:
        self._steps += 1
        self._wait_s += wait_s
        if result.loss is not None:
            self._results.append(result)

    @property
    def seconds(self) -> float:
        """Since it was last told."""
        return time.perf_counter() - self._begun

    def take(self, step: int) -> Figures:
        """The figures up to `step`, after which it begins anew. Waits for the device."""
        losses = _read([result.loss for result in self._results])
        first = step - self._steps + 1
        figures = Figures(
            steps=self._steps,
            loss=math.fsum(losses) if all(map(math.isfinite, losses)) else math.nan,
            correct=sum(_read([result.correct for result in self._results])),
            pictures=sum(_read([result.pictures for result in self._results])),
            wait_s=self._wait_s,
            seconds=self.seconds,
            first_bad=next((first + place for place, loss in enumerate(losses) if not math.isfinite(loss)), None),
        )
        self.start()
        return figures


def _read(values: list[Tensor | int | None]) -> list[float]:
    tensors = [value for value in values if isinstance(value, Tensor)]
    numbers = [float(value) for value in values if isinstance(value, int)]
    return (torch.stack(tensors).double().tolist() if tensors else []) + numbers
