"""What a callback may look on at."""

from __future__ import annotations

from typing import NamedTuple

from engine.metrics.base import Metric
from engine.strategies.base import StepResult


class StepEnd(NamedTuple):
    """What the ranks agreed on after a step, the same on all of them.

    `report`: its metrics are due; `settled`: they are read at once, not a step later, when a GPU has the next one to do;
    `record`: the next step is recorded; `last`: it was the epoch's last.
    """

    epoch: int
    step: int
    learning_rate: float
    report: bool
    settled: bool
    record: bool
    last: bool


class Callback:
    """Looks on as a model is trained; a subclass overrides what it needs.

    Every rank calls the same methods in the same order, so that a callback may join the others in a collective.
    """

    def on_epoch_start(self, epoch: int) -> None: ...

    def on_steps_start(self) -> None:
        """Steps follow: those of an epoch, or what is left of them after a checkpoint."""

    def on_step_start(self) -> None:
        """The next batch is about to be asked for."""

    def on_step_made(self, step: int, result: StepResult | None, wait_s: float) -> None:
        """A step has been made, or left out (None); a GPU may yet have to compute it. Its batch was waited for so long."""

    def on_step_end(self, end: StepEnd) -> None: ...

    def on_steps_end(self) -> None:
        """What comes now belongs to no step: a validation, or a checkpoint."""

    def on_validation_start(self) -> None: ...

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        """The model, or the average of its weights, has been measured, and is as it was measured."""
