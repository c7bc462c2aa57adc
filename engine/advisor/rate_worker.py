"""Worker for the learning rate finder, which runs the first steps of the job's training with an increasing rate."""

from __future__ import annotations

import math
import socket
import time
from functools import partial

import torch

from engine.advisor.rate_curve import STEPS, Curve, RunningLoss, rate_at, running_decay
from engine.advisor.trial_results import write_result
from engine.contract.events import StepMetrics
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.data.randomness import Purpose
from engine.training import worker
from engine.training.oom_retry import ResilientStep
from engine.training.randomness import seed
from engine.training.report import Reporter
from engine.training.split_loader import SplitLoader

ENOUGH_S = 150.0
"""Maximum time in seconds for the curve. If steps are slow, there are fewer than `STEPS` steps."""
MIN_STEPS = 40
"""Minimum number of steps for a useful curve, even if they take longer than `ENOUGH_S`."""
WARM_UP, TIMED = 1, 2
"""Number of untimed steps, and of timed steps for predicting the duration of the curve.

They have the lowest rate, which changes almost nothing.
"""


def run(spec: WorkerSpec, channel: socket.socket) -> int:
    """Train with increasing learning rates for the rate finder. See `engine.training.worker.run` for the arguments."""
    return worker.run_reporting(spec, channel, partial(_train, spec))


def _train(spec: WorkerSpec, reporter: Reporter) -> WorkerDone:
    """Record the curve of losses on all ranks together, and write it to the run folder on rank 0."""
    prepared = worker.prepare(spec, reporter)
    train = prepared.dataloaders.create_train_loader()
    try:
        curve = _record_curve(_RateSteps(spec, reporter, prepared, train), spec, reporter)
    finally:
        train.close()
    if spec.rank == 0:
        write_result(spec.run_folder, spec.rank, curve)
    prepared.strategy.teardown()
    return WorkerDone(stopped=False)


class _RateSteps:
    """Runner of training steps at given learning rates, on all ranks together.

    Attributes:
        step_count: Number of steps that have been run.
    """

    def __init__(
        self, spec: WorkerSpec, reporter: Reporter, prepared: worker.WorkerContext, train: SplitLoader
    ) -> None:
        self.collectives = prepared.strategy.collectives
        self.step_count = 0  # number of steps until now, including the warm-up
        self._reporter = reporter
        optimizer_step = prepared.create_optimizer_step(train.steps)
        # Dropout draws differently on every rank, as in training.
        seed(prepared.streams.derive_seed(Purpose.MODEL, rank=prepared.strategy.stream_rank))
        on_event = reporter.send if spec.rank == 0 else lambda _event: None
        self._stepper = ResilientStep(prepared.strategy, optimizer_step, on_event, has_checkpoint=lambda: False)
        groups = optimizer_step.optimizer.param_groups
        # Parameter groups with the ratio of their learning rate to that of the job.
        self._groups = [(group, group["lr"] / spec.job.optimizer.learning_rate) for group in groups]
        # As many epochs as steps suffice, because an epoch has at least one batch.
        self._batches = (batch for epoch in range(1, STEPS + TIMED + WARM_UP + 1) for batch in train.epoch(epoch))

    def step(self, rate: float) -> float:
        """Run a step at the learning rate `rate`, and return its loss, summed over all ranks."""
        for group, ratio in self._groups:
            group["lr"] = rate * ratio
        self._reporter.set_activity("data")
        batch = next(self._batches)
        self._reporter.set_activity("step")
        result = self._stepper.step(batch, self.step_count + 1)
        self.step_count += 1
        self._reporter.set_step(self.step_count)
        self._reporter.set_activity("agree")
        loss = float(result.loss) if result is not None and result.loss is not None else 0.0
        return float(self.collectives.all_reduce_sum(torch.tensor([loss], dtype=torch.float64)))


def _record_curve(rate_steps: _RateSteps, spec: WorkerSpec, reporter: Reporter) -> Curve:
    """Train with an increasing rate, and return the losses.

    There are `STEPS` steps, or fewer if these would take too long.
    """
    reporter.set_phase("training")
    for _ in range(WARM_UP):
        rate_steps.step(rate_at(0, STEPS))
    started = time.perf_counter()
    for _ in range(TIMED):
        rate_steps.step(rate_at(0, STEPS))
    step_s = (time.perf_counter() - started) / TIMED
    affordable_steps = min(STEPS, int(ENOUGH_S / step_s))
    (steps,) = rate_steps.collectives.all_reduce_max([max(MIN_STEPS, affordable_steps)])  # equal on all ranks
    running, losses = RunningLoss(running_decay(steps)), []
    for index in range(steps):
        rate = rate_at(index, steps)
        loss = rate_steps.step(rate)
        losses.append(loss)
        running.add(loss)
        if spec.rank == 0:
            reporter.send(_make_step_metrics(rate_steps.step_count, rate, loss))
        if rate_steps.collectives.all_reduce_max([int(running.has_diverged)])[0]:
            break
    return Curve(tuple(losses), steps, running.has_diverged)


def _make_step_metrics(step: int, rate: float, loss: float) -> StepMetrics:
    """Create the event that reports a step with its learning rate and loss.

    The times and the throughput are 0, because the finder ignores them. A loss that isn't finite becomes 0.
    """
    return StepMetrics(
        epoch=1,
        step=step,
        loss=loss if math.isfinite(loss) else 0.0,
        learning_rate=rate,
        images_per_second=0.0,
        data_wait_s=0.0,
        compute_s=0.0,
    )
