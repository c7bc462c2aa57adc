"""Base class of the training loop's callbacks."""

from __future__ import annotations

from typing import NamedTuple

from engine.metrics.base import Metric
from engine.strategies.base import StepResult


class StepEnd(NamedTuple):
    """State after a step, which is the same on all ranks.

    Attributes:
        report: True if the step's metrics are due.
        settled: True to read them now; False to read them one step later, while a GPU computes the next step.
        record: True if the next step is recorded.
        last: True if the step was the epoch's last.
    """

    epoch: int
    step: int
    learning_rate: float
    report: bool
    settled: bool
    record: bool
    last: bool


class Callback:
    """Hooks of the training loop, which do nothing by default.

    Every rank calls the same methods in the same order, so that a callback may use collectives.
    """

    def on_epoch_start(self, epoch: int) -> None: ...

    def on_steps_start(self) -> None:
        """Prepare for the steps of an epoch, or for the rest of them after a checkpoint."""

    def on_step_start(self) -> None:
        """Prepare for a step, whose batch is about to be loaded."""

    def on_step_made(self, step: int, result: StepResult | None, wait_s: float) -> None:
        """Handle a step that was launched, or skipped (`result` is None); a GPU may still be computing it.

        `wait_s` is the time in seconds spent waiting for its batch.
        """

    def on_step_end(self, end: StepEnd) -> None: ...

    def on_steps_end(self) -> None:
        """Handle a pause of the steps, for a validation or a checkpoint."""

    def on_validation_start(self) -> None: ...

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        """Handle the metrics of a validation; the model, or its average, is still as it was evaluated."""
