"""Results of training steps, accumulated on the device and copied from it only for reports."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.strategies.base import StepResult


class NotFinite(Exception):  # noqa: N818 - describes the loss
    """Raised when a loss is NaN or infinite. The error message names the step."""

    def __init__(self, step: int, subject: str, *, has_checkpoint: bool) -> None:
        checkpoint = "The last good checkpoint is kept." if has_checkpoint else "No checkpoint has been saved yet."
        remedy = "Try a lower learning rate, or fp32 if another precision was chosen."
        super().__init__(f"{subject} became NaN or infinite at step {step}. {checkpoint} {remedy}")
        self.step = step


@dataclass(frozen=True, slots=True)
class StepTotals:
    """Sums of losses, correct predictions, images and times over `steps` steps on this rank.

    Attributes:
        losses: Sum of each component of the loss. Empty if the loss has no components, or if there were no steps.
        has_correct: True if the number of correct predictions is known.
        first_bad: First step whose loss was not finite, or None if all were finite.
    """

    steps: int
    loss: float
    losses: tuple[float, ...]
    correct: float
    has_correct: bool
    images: float
    wait_s: float
    seconds: float
    first_bad: int | None


class MetricBuffer:
    """Buffer that accumulates the results of steps on the device, so that steps need not wait for the device."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Clear the buffer and restart the clock that `seconds` reads."""
        self._results: list[StepResult] = []
        self._wait_s = 0.0
        self._started = time.perf_counter()

    def add(self, result: StepResult, wait_s: float) -> None:
        """Add the result of a step, before which the worker waited `wait_s` seconds for its batch."""
        self._wait_s += wait_s
        self._results.append(result)

    @property
    def seconds(self) -> float:
        """Seconds since the last `start`."""
        return time.perf_counter() - self._started

    def take(self, step: int) -> BufferedMetrics:
        """Start copying the results accumulated up to `step` from the device, and clear the buffer."""
        taken = BufferedMetrics(self._results, step - len(self._results) + 1, self._wait_s, self.seconds)
        self.start()
        return taken


class BufferedMetrics:
    """Results of steps that are being copied from the device. `read` waits for them."""

    def __init__(self, results: list[StepResult], first: int, wait_s: float, seconds: float) -> None:
        """Start copying the `results` of steps, beginning with step `first`.

        `seconds` is the duration of these steps, and `wait_s` the part of it in which the worker waited for batches. The
        results of a rank that computes no loss have none.
        """
        self._loss_steps = [first + offset for offset, result in enumerate(results) if result.loss is not None]
        self._steps = len(results)
        self._wait_s = wait_s
        self._seconds = seconds
        self._losses = _BackgroundCopy([result.loss for result in results])
        self._parts = _BackgroundCopy([result.losses for result in results])
        self._has_correct = any(result.correct is not None for result in results)
        self._correct = _BackgroundCopy([result.correct for result in results])
        self._images = _BackgroundCopy([result.images for result in results])

    def read(self) -> StepTotals:
        """Wait for the results and return their sums on this rank."""
        losses = self._losses.read()
        bad_steps = (step for step, loss in zip(self._loss_steps, losses, strict=True) if not math.isfinite(loss))
        return StepTotals(
            steps=self._steps,
            loss=math.fsum(losses) if all(map(math.isfinite, losses)) else math.nan,
            losses=tuple(map(math.fsum, zip(*self._parts.read(), strict=True))),
            correct=sum(self._correct.read()),
            has_correct=self._has_correct,
            images=sum(self._images.read()),
            wait_s=self._wait_s,
            seconds=self._seconds,
            first_bad=next(bad_steps, None),
        )


class _BackgroundCopy:
    """Background copy of numbers and tensors to the CPU. All tensors have the same shape and device."""

    def __init__(self, values: Sequence[Tensor | int | None]) -> None:
        """Start copying the `values`. Those that are None are left out."""
        tensors = [value.detach() for value in values if isinstance(value, Tensor)]
        self._numbers = [float(value) for value in values if isinstance(value, int)]
        self._copied = torch.stack(tensors).double() if tensors else None
        self._done: torch.cuda.Event | None = None  # occurs at the end of a copy from a GPU
        if self._copied is not None and self._copied.is_cuda:
            pinned = torch.empty(self._copied.shape, dtype=self._copied.dtype, pin_memory=True)
            self._copied = pinned.copy_(self._copied, non_blocking=True)
            self._done = torch.cuda.Event()
            self._done.record()

    def read(self) -> list[Any]:
        """Wait for the copy, and return the numbers, followed by the values of the tensors as (nested) lists."""
        if self._done is not None:
            self._done.synchronize()
        return self._numbers + (self._copied.tolist() if self._copied is not None else [])
