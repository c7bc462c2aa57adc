"""Training loop over epochs and steps, with validations."""

from __future__ import annotations

import math

from torch import Tensor

from engine.contract.events import EpochStarted, Event, LogLine, Part, Warned
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import Strategy
from engine.training.agreement import Agreement, Requests
from engine.training.callbacks.callback import Callback, StepEnd
from engine.training.callbacks.predictions import Predictions
from engine.training.callbacks.step_metrics import StepReport
from engine.training.callbacks.step_profile import StepProfile
from engine.training.callbacks.unfreezing import Unfreezing
from engine.training.callbacks.validation_report import ValidationReport
from engine.training.checkpointing.checkpoint_writer import TrainProgress
from engine.training.checkpointing.checkpointer import Checkpointer
from engine.training.metric_buffer import NotFinite
from engine.training.oom_retry import ResilientStep
from engine.training.randomness import preserve_rng
from engine.training.report import Reporter
from engine.training.split_loader import SplitLoader


class Trainer:
    """Trainer for the epochs from `start` to the last epoch, or until the run is stopped.

    All ranks run it in lockstep, and rank 0 reports. Steps up to the spec's `skip_to` are skipped. They count as
    completed, including their images, schedule and validations, but do not change the weights. If `every_step` is True,
    the metrics of each step are reported.
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
        start: TrainProgress,
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
        self.start = start
        self.every_step = every_step
        self.agreement = Agreement(strategy.collectives, spec.world_size)
        self.leads = spec.rank == 0  # True on the rank that reports
        self.step = start.step
        self.metric = strategy.objective.create_metric()
        self.stepper = ResilientStep(strategy, optimizer_step, self._emit, lambda: checkpointer.has_checkpoint)
        self.stopping = checkpointer.stopping
        self.step_report = StepReport(strategy, self._emit, lambda: checkpointer.has_checkpoint)
        self._skip_to = spec.skip_to
        self._first_step = max(start.step, spec.skip_to) + 1  # first step that is not skipped
        # Part of a step that the exchange with other ranks counts as.
        self._agreement_part: Part = "communication" if spec.world_size > 1 else "logging"
        self.callbacks: list[Callback] = [
            Unfreezing(strategy, optimizer_step, self.stepper, self._emit),
            self.step_report,
            StepProfile(strategy, train, self._emit, first_epoch=start.epoch, first_step=self._first_step),
            ValidationReport(strategy, val.images, self._emit),
            self.stopping,
            *([predictions] if predictions is not None else []),
        ]

    def run(self) -> WorkerDone:
        """Train the model, wait until its final state is saved, and return the outcome.

        If the disk refuses the final state, saving is retried for a limited time. Raises NotFinite if the loss becomes
        NaN or infinite.
        """
        stopped = False
        done = self.start.done  # number of completed steps in the epoch
        for epoch in range(self.start.epoch, self.job.training.epochs + 1):
            if self.stopping.is_over:
                self._emit(LogLine(text=self.stopping.explanation))
                break
            stopped = self._run_epoch(epoch, done)
            if stopped:
                break
            done = 0
        reporter, checkpointer = self.reporter, self.checkpointer
        # A stop cancels the retries, unless it is the one that has ended the training.
        unsaved = checkpointer.retry_final_save(
            stopped=stopped, is_cancelled=lambda: reporter.stop_requested and not stopped
        )
        return WorkerDone(stopped=stopped, best=checkpointer.best, best_epoch=checkpointer.best_epoch, unsaved=unsaved)

    def _run_epoch(self, epoch: int, done: int) -> bool:
        """Train one epoch from its step `done` on, validate the model, and save a checkpoint.

        Return True if the run was stopped. The state is then saved without a complete validation.
        """
        self._emit(EpochStarted(epoch=epoch))
        for callback in self.callbacks:
            callback.on_epoch_start(epoch)
        stopped = False
        done = self._skip_steps(epoch, done)
        if done < self.train.steps:
            done, stopped = self._train_epoch(epoch, done)
        values, averaged = (None, None) if stopped else self._validate(epoch)
        stopped = values is None  # also if a stop interrupted the validation
        if not stopped:
            self.reporter.set_phase("saving")
        is_last = stopped or self.stopping.is_over or epoch == self.job.training.epochs
        self.checkpointer.save(
            self._get_progress(epoch, done, validated=not stopped), values, averaged, may_skip=not is_last
        )
        return stopped

    def _train_epoch(self, epoch: int, done: int) -> tuple[int, bool]:
        """Run the steps of an epoch from its step `done` on, and save the checkpoints that are due within it.

        Return the number of completed steps, and True if the run was stopped.
        """
        self.reporter.set_phase("training")
        batches = self.train.epoch(epoch, done)
        for callback in self.callbacks:
            callback.on_steps_start()
        for number in range(done + 1, self.train.steps + 1):
            self.reporter.set_activity("data")
            self._set_loader_threads()
            for callback in self.callbacks:
                callback.on_step_start()
            batch = next(batches)
            learning_rate = self.optimizer_step.learning_rate
            self.reporter.set_activity("step")
            result = self.stepper.step(batch, self.step + 1)
            self.step += 1
            self.reporter.set_step(self.step)
            self.reporter.set_activity("agree")
            for callback in self.callbacks:
                callback.on_step_submitted(self.step, result, batch.wait_s if batch is not None else 0.0)
            agreed = self._end_step(epoch, learning_rate, is_last=number == self.train.steps)
            if agreed.stop:
                self.reporter.set_phase(self.reporter.ending, f"after step {self.step}")
                return number, True
            if agreed.checkpoint:
                self._save_checkpoint(epoch, number)
        for callback in self.callbacks:
            callback.on_steps_end()
        return self.train.steps, False

    def _end_step(self, epoch: int, learning_rate: float, *, is_last: bool) -> Requests:
        """Exchange requests with the other ranks at the end of a step, call the callbacks, and return the requests.

        `learning_rate` is that of the step, and `is_last` is True for the last step of the epoch.
        """
        report_now = self.step == self._first_step or self.every_step or is_last
        save_now = self.checkpointer.is_scheduled(self.step)
        # All ranks know `save_now` and `report_now`. The other requests may differ by rank. They take effect one step
        # later, or at once in the last step, which no step of the epoch follows.
        agreed = self._agree(
            checkpoint=not save_now and (self.reporter.checkpoint_requested or self.checkpointer.is_overdue()),
            report=not report_now and self.step_report.is_due,
            record=self.leads and self.strategy.profiler.is_due,
            at_once=is_last,
        )
        agreed = agreed._replace(checkpoint=agreed.checkpoint or save_now, report=agreed.report or report_now)
        # The metrics of other steps are read one step later (see `StepEnd`). No step follows a stop.
        read_now = report_now or agreed.stop or agreed.checkpoint
        end = StepEnd(
            epoch=epoch,
            step=self.step,
            learning_rate=learning_rate,
            report=agreed.report,
            read_now=read_now,
            record=agreed.record,
            last=is_last,
        )
        for callback in self.callbacks:
            callback.on_step_end(end)
        return agreed

    def _validate(self, epoch: int) -> tuple[dict[str, float] | None, dict[str, Tensor] | None]:
        """Validate the model, and return its metrics and the state of the averaged model.

        The metrics are None if a stop interrupted the validation. With weight averaging, the averaged model is
        validated. Its state is returned only if it is the best until now, otherwise None. The random states of the
        training are preserved, so that it continues in the same way after a resume.
        """
        self.reporter.set_phase("validating")
        self.metric.reset()
        for callback in self.callbacks:
            callback.on_validation_start()
        with self.optimizer_step.use_averages(), preserve_rng(self.strategy.gpus):
            is_complete = self.strategy.evaluate(self.val.epoch(epoch), self.metric, self._agree_on_stop)
            self.agreement.discard_pending()
            if not is_complete:
                self.reporter.set_phase(self.reporter.ending, "during validation")
                return None, None
            # All ranks decide with rank 0's values, since a custom metric may be random or differ in the last bits.
            values: dict[str, float] = self.strategy.collectives.broadcast_object(self.metric.compute())
            if not all(map(math.isfinite, values.values())):
                raise NotFinite(self.step, "The validation loss", has_checkpoint=self.checkpointer.has_checkpoint)
            for callback in self.callbacks:
                callback.on_validation_end(epoch, self.step, self.metric, values)
            is_better = self.optimizer_step.has_averages and self.checkpointer.is_better(values)
            return values, self.strategy.state_dict() if is_better else None

    def _save_checkpoint(self, epoch: int, done: int) -> None:
        """Save a checkpoint in the middle of an epoch, after its step `done`."""
        self.reporter.checkpoint_requested = False
        self.reporter.set_phase("saving")
        for callback in self.callbacks:
            callback.on_steps_end()
        self.checkpointer.save(self._get_progress(epoch, done))
        self.reporter.set_phase("training")
        for callback in self.callbacks:
            callback.on_steps_start()

    def _skip_steps(self, epoch: int, done: int) -> int:
        """Skip the steps of `epoch` after its step `done` up to the spec's `skip_to`.

        Return the number of steps of the epoch that are then completed.
        """
        count = min(self._skip_to - self.step, self.train.steps - done)
        if count <= 0:
            return done
        first, self.step = self.step + 1, self.step + count
        self.optimizer_step.set_schedule_step(self.step)
        self.reporter.set_step(self.step)
        steps = f"steps {first:,} to {self.step:,}" if count > 1 else f"step {first:,}"
        self._emit(Warned(code="steps_passed_over", message=f"Skipping {steps}: non-finite loss"))
        return done + count

    def _set_loader_threads(self) -> None:
        """Set the number of loader threads if the user has requested one, and report it.

        The user calls these threads loader workers. Their number does not change the batches, and may differ by rank.
        """
        threads, self.reporter.loader_workers_requested = self.reporter.loader_workers_requested, None
        if threads is not None:
            for split_loader in (self.train, self.val):
                split_loader.set_threads(threads)
            self._emit(LogLine(text=f"Each process now uses {threads} loader workers"))

    def _agree(
        self, *, checkpoint: bool = False, report: bool = False, record: bool = False, at_once: bool = False
    ) -> Requests:
        """Exchange requests with the other ranks, and return those that take effect now.

        This rank requests a `checkpoint`, a `report` or a `record` by the profiler if True, and a stop if the
        supervisor does. All ranks must call it at the same step. With several ranks, requests take effect in the next
        call, or immediately with `at_once` (see `Agreement.exchange`).
        """
        agreed = self.agreement.exchange(
            Requests(self.reporter.stop_requested, checkpoint, report, record), at_once=at_once
        )
        self.strategy.profiler.mark(self._agreement_part)
        return agreed

    def _agree_on_stop(self) -> bool:
        """Exchange requests with the other ranks, and return True if they have agreed to stop.

        All ranks call this together, between the batches of a validation.
        """
        self.reporter.set_activity("agree")
        stop = self._agree().stop
        self.reporter.set_activity("evaluate")
        return stop

    def _get_progress(self, epoch: int, done: int, *, validated: bool = False) -> TrainProgress:
        """Return the position after step `done` of `epoch`. `validated` is True if the epoch has been validated."""
        return TrainProgress(epoch=epoch, done=done, steps=self.train.steps, step=self.step, validated=validated)

    def _emit(self, event: Event) -> None:
        """Send an event to the supervisor. Ranks other than 0 do nothing."""
        if self.leads:
            self.reporter.send(event)
