"""Base class of callbacks."""

from __future__ import annotations

from typing import NamedTuple

from engine.metrics.base import Metric
from engine.strategies.base import StepResult


class StepEnd(NamedTuple):
    """State after a training step. It is equal on all ranks.

    Attributes:
        report: True if the metrics of the step should be reported.
        read_now: True if the metrics should be read immediately, False if they should be read one step later, while a
            GPU computes that step.
        record: True if the profiler records the next step.
        last: True for the last step of an epoch.
    """

    epoch: int
    step: int
    learning_rate: float
    report: bool
    read_now: bool
    record: bool
    last: bool


class Callback:
    """Base class with hooks for the training loop, which do nothing by default.

    All ranks call the same hooks in the same order, so callbacks may use collectives.
    """

    def on_epoch_start(self, epoch: int) -> None: ...

    def on_steps_start(self) -> None:
        """Called before the first step of an epoch, and before the first step after a checkpoint."""

    def on_step_start(self) -> None:
        """Called before a step's batch is loaded."""

    def on_step_submitted(self, step: int, result: StepResult | None, wait_s: float) -> None:
        """Called after a step was submitted to the device, or skipped. A GPU may still be computing it.

        `step` counts from the start of the run. `result` is None if the step was skipped. `wait_s` is the time spent
        waiting for the batch, in seconds.
        """

    def on_step_end(self, end: StepEnd) -> None: ...

    def on_steps_end(self) -> None:
        """Called when training steps pause for a validation or a checkpoint."""

    def on_validation_start(self) -> None: ...

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        """Called with the metrics of a validation, while the model still has the weights that were evaluated."""
