"""Callback that reports the loss, accuracy and speed of steps."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.contract.events import Event, StepMetrics
from engine.strategies.base import StepResult, Strategy
from engine.training.callbacks.callback import Callback, StepEnd
from engine.training.metric_buffer import BufferedMetrics, MetricBuffer, NotFinite

REPORT_S = 0.15
"""Minimum seconds between two reports of step metrics."""

_NEVER = 1 << 62
"""Number above all steps. The first bad step is subtracted from it, so that a maximum finds the earliest."""


class StepReport(Callback):
    """Callback that accumulates the results of steps, sums them over all ranks, and reports them.

    On a GPU, results are reported one step late, so that the device computes the next step while they are copied.
    Raises NotFinite on all ranks if a loss is not finite. `has_checkpoint` returns True if the run has a checkpoint.
    """

    def __init__(self, strategy: Strategy, emit: Callable[[Event], None], has_checkpoint: Callable[[], bool]) -> None:
        self._strategy = strategy
        self._emit = emit
        self._has_checkpoint = has_checkpoint
        self._metric_buffer = MetricBuffer()
        self._pending: tuple[StepEnd, BufferedMetrics] | None = None  # results that are reported after the next step

    @property
    def is_due(self) -> bool:
        """True if this is rank 0 and `REPORT_S` have passed since the last report."""
        return self._strategy.spec.rank == 0 and self._metric_buffer.seconds >= REPORT_S

    def on_steps_start(self) -> None:
        """Restart the clock, so that the time of a validation or checkpoint doesn't count."""
        self._metric_buffer.start()

    def on_step_submitted(self, step: int, result: StepResult | None, wait_s: float) -> None:
        if result is not None:
            self._metric_buffer.add(result, wait_s)

    def on_step_end(self, end: StepEnd) -> None:
        """Report the pending results of earlier steps and, if requested, those up to this step.

        On a GPU, the latter stay pending until the next step, unless `end.read_now` is True. All ranks call it
        together.
        """
        self._report_pending()
        if end.report or end.read_now:
            self._pending = end, self._metric_buffer.take(end.step)
        if end.read_now or self._strategy.device.type == "cpu":
            self._report_pending()

    def _report_pending(self) -> None:
        """Sum the pending results over all ranks, and report them. Raises NotFinite if a loss is not finite.

        All ranks call it together.
        """
        if self._pending is None:
            return
        (end, buffered), self._pending = self._pending, None
        totals = buffered.read()
        if not totals.steps:  # all were skipped, on all ranks
            return
        collectives = self._strategy.collectives
        # The maximum of these differences belongs to the first bad step on any rank.
        difference = collectives.all_reduce_max([_NEVER - totals.first_bad if totals.first_bad is not None else 0])[0]
        if difference:
            raise NotFinite(_NEVER - difference, "The loss", has_checkpoint=self._has_checkpoint())
        names: tuple[str, ...] = getattr(self._strategy.model, "loss_names", ())
        local = [
            *(totals.losses or (0.0,) * len(names)),
            totals.loss,
            totals.correct,
            totals.has_correct,
            totals.images,
            totals.wait_s,
            self._strategy.loads_data,
        ]
        summed = collectives.all_reduce_sum(torch.tensor(local, dtype=torch.float64)).tolist()
        # The sums of `has_correct` and `loads_data` are numbers of ranks.
        losses, (loss, correct, counted, images, wait_s, loaders) = summed[: len(names)], summed[len(names) :]
        wait_s /= loaders  # mean over the ranks that load data
        self._emit(
            StepMetrics(
                epoch=end.epoch,
                step=end.step,
                loss=loss / totals.steps,
                accuracy=correct / images if counted and images else None,
                learning_rate=end.learning_rate,
                images_per_second=images / totals.seconds,
                data_wait_s=wait_s / totals.steps,
                compute_s=max(0.0, totals.seconds - wait_s) / totals.steps,
                losses={name: part / totals.steps for name, part in zip(names, losses, strict=True)},
            )
        )
