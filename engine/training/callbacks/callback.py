"""The base class of the training loop's callbacks."""

from __future__ import annotations

from typing import NamedTuple

from engine.metrics.base import Metric
from engine.strategies.base import StepResult


class StepEnd(NamedTuple):
    """The state after a step, which the ranks have agreed on and which is the same on all of them.

    `report`: its metrics are due; `settled`: they are read at once, not a step later, when a GPU has the next one to
    do; `record`: the next step is recorded; `last`: it was the epoch's last.
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

    Every rank calls the same methods in the same order, so that a callback may join the others in a collective.
    """

    def on_epoch_start(self, epoch: int) -> None: ...

    def on_steps_start(self) -> None:
        """Steps follow: those of an epoch, or what is left of them after a checkpoint."""

    def on_step_start(self) -> None:
        """The next batch is about to be loaded."""

    def on_step_made(self, step: int, result: StepResult | None, wait_s: float) -> None:
        """A step has been launched, or skipped (`result` is None); a GPU may still be computing it. `wait_s` are the
        seconds spent waiting for its batch.
        """

    def on_step_end(self, end: StepEnd) -> None: ...

    def on_steps_end(self) -> None:
        """No step follows for now, but a validation or a checkpoint."""

    def on_validation_start(self) -> None: ...

    def on_validation_end(self, epoch: int, step: int, metric: Metric, values: dict[str, float]) -> None:
        """The model, or the average of its weights, has been evaluated and is still in the state that was
        evaluated.
        """
