"""The training itself: epochs, steps, validation."""

from __future__ import annotations

import math

from torch import Tensor

from engine.contract.events import EpochStarted, Event, LogLine, Part, Warned
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import Strategy
from engine.training.callbacks.callback import Callback, StepEnd
from engine.training.callbacks.predictions import Predictions
from engine.training.callbacks.step_metrics import StepReport
from engine.training.callbacks.step_profile import StepProfile
from engine.training.callbacks.unfreezing import Unfreezing
from engine.training.callbacks.validation_report import ValidationReport
from engine.training.checkpointing.checkpointer import Checkpointer, TrainProgress
from engine.training.metric_buffer import NotFinite
from engine.training.oom_retry import Stepper
from engine.training.randomness import preserve_rng
from engine.training.report import Reporter
from engine.training.split_loader import SplitLoader


class Trainer:
    """Trains from `begin` to the last epoch or to a stop. All ranks run it in step, and rank 0 reports for all. Steps
    up to the `skip_to` of the spec are skipped: their images, their part of the schedule and the validations at the
    ends of epochs count as done, but the weights do not change.

    With `every_step`, each step's metrics are reported.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        strategy: Strategy,
        optimizer_step: OptimizerStep,
        reporter: Reporter,
        checkpointer: Checkpointer,
        *,
        train: SplitLoader,
        val: SplitLoader,
        begin: TrainProgress,
        predictions: Predictions | None,
        every_step: bool = False,
    ) -> None:
        self.job = spec.job
        self.strategy = strategy
        self.optimizer_step = optimizer_step
        self.reporter = reporter
        self.checkpointer = checkpointer
        self.train = train
        self.val = val
        self.begin = begin
        self.every_step = every_step
        self.leads = spec.rank == 0
        self.step = begin.step
        self.metric = strategy.objective.metric()
        self.stepper = Stepper(strategy, optimizer_step, self._emit, lambda: checkpointer.saved)
        self.stopping = checkpointer.stopping
        self.report = StepReport(strategy, self._emit, lambda: checkpointer.saved)
        self._skip_to = spec.skip_to
        self._first = max(begin.step, spec.skip_to) + 1
        self._agreeing: Part = "communication" if spec.world_size > 1 else "logging"
        self.callbacks: list[Callback] = [
            Unfreezing(strategy, optimizer_step, self.stepper, self._emit),
            self.report,
            StepProfile(strategy, train, self._emit, first_epoch=begin.epoch, first_step=self._first),
            ValidationReport(strategy, val.images, self._emit),
            self.stopping,
            *([predictions] if predictions is not None else []),
        ]

    def run(self) -> WorkerDone:
        """Trains. Raises NotFinite where the loss is no number any more."""
        stopped = False
        done = self.begin.done
        for epoch in range(self.begin.epoch, self.job.epochs + 1):
            if self.stopping.over:
                self._emit(LogLine(text=self.stopping.why))
                break
            self._emit(EpochStarted(epoch=epoch))
            for callback in self.callbacks:
                callback.on_epoch_start(epoch)
            done = self._skip_steps(epoch, done)
            if done < self.train.steps:
                done, stopped = self._train_epoch(epoch, done)
            values, averaged = (None, None) if stopped else self._validate(epoch)
            stopped = values is None
            if not stopped:
                self.reporter.phase("saving")
            ends = stopped or self.stopping.over or epoch == self.job.epochs
            self.checkpointer.save(
                self._progress(epoch, done, validated=not stopped), values, averaged, may_wait=not ends
            )
            if stopped:
                break
            done = 0
        reporter, checkpointer = self.reporter, self.checkpointer
        unsaved = checkpointer.insist(stopped=stopped, broken_off=lambda: reporter.stop_requested and not stopped)
        return WorkerDone(stopped=stopped, best=checkpointer.best, best_epoch=checkpointer.best_epoch, unsaved=unsaved)

    def _train_epoch(self, epoch: int, done: int) -> tuple[int, bool]:
        """One epoch after its first `done` steps; how many are done then, and whether it was stopped."""
        self.reporter.phase("training")
        batches = self.train.epoch(epoch, done)
        for callback in self.callbacks:
            callback.on_steps_start()
        for number in range(done + 1, self.train.steps + 1):
            self.reporter.at("data")
            self._adjust()
            for callback in self.callbacks:
                callback.on_step_start()
            batch = next(batches)
            learning_rate = self.optimizer_step.learning_rate
            self.reporter.at("step")
            result = self.stepper.step(batch, self.step + 1)
            self.step += 1
            self.reporter.progressed(self.step)
            self.reporter.at("agree")
            for callback in self.callbacks:
                callback.on_step_made(self.step, result, batch.wait_s if batch is not None else 0.0)
            last = number == self.train.steps
            now = self.step == self._first or self.every_step or last
            stop, checkpoint, report, record = self._agree(
                checkpoint=self.checkpointer.is_due(self.step),
                report=now or self.report.is_due,
                record=self.leads and self.strategy.profiler.is_due,
            )
            end = StepEnd(epoch, self.step, learning_rate, report, now or stop or checkpoint, record, last)
            for callback in self.callbacks:
                callback.on_step_end(end)
            if stop:
                self.reporter.phase(self.reporter.ending, f"after step {self.step}")
                return number, True
            if checkpoint:
                self._checkpoint(epoch, number)
        for callback in self.callbacks:
            callback.on_steps_end()
        return self.train.steps, False

    def _validate(self, epoch: int) -> tuple[dict[str, float] | None, dict[str, Tensor] | None]:
        """The measures over the whole validation set, or None where it was stopped.

        The training's random numbers stay as they are, so that a run which was stopped here goes on with the same.
        Where an average of the weights is kept, it is what is measured, and with measures better than before
        its state is given too.
        """
        self.reporter.phase("validating")
        self.metric.reset()
        for callback in self.callbacks:
            callback.on_validation_start()
        with self.optimizer_step.averaged(), preserve_rng(self.strategy.device):
            if not self.strategy.evaluate(self.val.epoch(epoch), self.metric, self._is_stopped):
                self.reporter.phase(self.reporter.ending, "during validation")
                return None, None
            values = self.metric.compute()
            if not all(map(math.isfinite, values.values())):
                raise NotFinite(self.step, "The validation loss", self.checkpointer.saved)
            for callback in self.callbacks:
                callback.on_validation_end(epoch, self.step, self.metric, values)
            better = self.optimizer_step.averages and self.checkpointer.is_better(values)
            return values, self.strategy.state_dict() if better else None

    def _checkpoint(self, epoch: int, done: int) -> None:
        """Saves the state within an epoch."""
        self.reporter.checkpoint_requested = False
        self.reporter.phase("saving")
        for callback in self.callbacks:
            callback.on_steps_end()
        self.checkpointer.save(self._progress(epoch, done))
        self.reporter.phase("training")
        for callback in self.callbacks:
            callback.on_steps_start()

    def _skip_steps(self, epoch: int, done: int) -> int:
        """Passes over those steps of `epoch` after the first `done` that are not to be trained; how many are done
        then.
        """
        count = min(self._skip_to - self.step, self.train.steps - done)
        if count <= 0:
            return done
        first, self.step = self.step + 1, self.step + count
        self.optimizer_step.go_to(self.step)
        self.reporter.progressed(self.step)
        message = (
            f"Skipping steps {first:,} to {self.step:,}: non-finite loss"
            if count > 1
            else f"Skipping step {first:,}: non-finite loss"
        )
        self._emit(Warned(code="steps_passed_over", message=message))
        return done + count

    def _adjust(self) -> None:
        """Does what a command has asked to change; each rank by itself, since the batches stay the same."""
        workers, self.reporter.loader_workers_requested = self.reporter.loader_workers_requested, None
        if workers is not None:
            for split_loader in (self.train, self.val):
                split_loader.set_threads(workers)
            self._emit(LogLine(text=f"Each process now uses {workers} loader workers"))

    def _agree(self, *, checkpoint: bool = False, report: bool = False, record: bool = False) -> list[bool]:
        """Whether to stop, checkpoint, report and record: each is true on all ranks if it is on any."""
        own = self.reporter.stop_requested, self.reporter.checkpoint_requested or checkpoint, report, record
        agreed = self.strategy.collectives.all_reduce_max([int(flag) for flag in own])
        self.strategy.profiler.mark(self._agreeing)
        return [bool(flag) for flag in agreed]

    def _is_stopped(self) -> bool:
        self.reporter.at("agree")
        stop = self._agree()[0]
        self.reporter.at("evaluate")
        return stop

    def _progress(self, epoch: int, done: int, *, validated: bool = False) -> TrainProgress:
        return TrainProgress(epoch=epoch, done=done, steps=self.train.steps, step=self.step, validated=validated)

    def _emit(self, event: Event) -> None:
        if self.leads:
            self.reporter.send(event)
