"""The training itself: epochs, steps, validation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine.contract.events import (
    ClassMeasures,
    EpochStarted,
    LogLine,
    Part,
    Predicted,
    StepMetrics,
    Validation,
    Warned,
)
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.models.model_surgery import still_norms
from engine.optim.optimizer_step import OptimizerStep
from engine.strategies.base import Strategy
from engine.strategies.memory import device_name
from engine.training.checkpointing.checkpointer import Checkpointer, TrainProgress
from engine.training.metric_buffer import BufferedMetrics, MetricBuffer, NotFinite
from engine.training.oom_retry import Stepper
from engine.training.predictions import Predictions
from engine.training.randomness import preserve_rng
from engine.training.report import Reporter
from engine.training.split_loader import SplitLoader
from engine.training.step_profile import StepProfile
from engine.training.unfreezing import thaw

REPORT_S = 0.15
"""Seconds between step metrics, where steps are faster than that."""
MOST_CONFUSED = 64
"""Classes of which the whole confusion matrix is told."""

_NEVER = 1 << 62


class Trainer:
    """Trains from `begin` to the last epoch or to a stop. Every rank runs it in step with the others.

    The steps up to the `skip_to` of the orders are passed over: all goes on as if they had been made, with the next
    images, the schedule and the validations at the ends of epochs, but for the weights.

    Rank 0 reports for all: what it tells is summed over the ranks, which so learn it too. With
    `every_step`, each step's metrics are reported.
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
        predictions: Callable[[], Predictions],
        every_step: bool = False,
    ) -> None:
        self.job = spec.job
        self.strategy = strategy
        self.optimizer_step = optimizer_step
        self.checkpointer = checkpointer
        self.train = train
        self.val = val
        self.reporter = reporter
        self.every_step = every_step
        self.leads = spec.rank == 0
        self.metric_buffer = MetricBuffer()
        self.profiler, self.watch = strategy.profiler, strategy.profiler.watch
        self.teller = StepProfile(strategy, train, reporter.send)
        self._agreeing: Part = "communication" if spec.world_size > 1 else "logging"
        self.stepper = Stepper(strategy, optimizer_step, self._tell, lambda: checkpointer.saved)
        self.begin = begin
        self._make_predictions = predictions
        self._predictions: Predictions | None = None
        self.step = begin.step
        self._skip_to = spec.skip_to
        self._first = max(begin.step, spec.skip_to) + 1
        self._pending: tuple[int, int, float, BufferedMetrics] | None = None

    def run(self) -> WorkerDone:
        """Trains. Raises NotFinite where the loss is no number any more."""
        stopped = False
        done = self.begin.done
        stopping = self.checkpointer.stopping
        for epoch in range(self.begin.epoch, self.job.epochs + 1):
            if stopping.over:
                self._tell(LogLine(text=stopping.why))
                break
            self._tell(EpochStarted(epoch=epoch))
            self._unfreeze(epoch)
            done = self._passed_over(epoch, done)
            if done < self.train.steps:
                done, stopped = self._train(epoch, done)
            measures, measured = (None, None) if stopped else self._validate(epoch)
            if not stopped:
                stopped = measures is None
            if not stopped:
                self.reporter.phase("saving")
            if measures is not None:
                stopping.add(epoch, measures)
            ends = stopped or stopping.over or epoch == self.job.epochs
            place = self._place(epoch, done, validated=measures is not None)
            self.checkpointer.save(place, measures, measured, may_wait=not ends)
            if stopped:
                break
            done = 0
        reporter = self.reporter
        unsaved = self.checkpointer.insist(stopped=stopped, broken_off=lambda: reporter.stop_requested and not stopped)
        return WorkerDone(
            stopped=stopped, best=self.checkpointer.best, best_epoch=self.checkpointer.best_epoch, unsaved=unsaved
        )

    def _train(self, epoch: int, done: int) -> tuple[int, bool]:
        """One epoch after its first `done` steps; how many are done then, and whether it was stopped."""
        self.reporter.phase("training")
        batches = self.train.epoch(epoch, done)
        self.metric_buffer.start()
        record = False
        if self.step >= self._first:
            self.watch.resume()
        for number in range(done + 1, self.train.steps + 1):
            self.reporter.at("data")
            self._adjust()
            self.profiler.begin(record=record)
            batch = next(batches)
            learning_rate = self.optimizer_step.learning_rate
            self.reporter.at("step")
            result = self.stepper.step(batch, self.step + 1)
            self.step += 1
            if result is not None:
                self.metric_buffer.add(result, batch.wait_s if batch is not None else 0.0)
            self.reporter.progressed(self.step)
            self.reporter.at("agree")
            event = self.profiler.end(self.step, self.strategy.collectives)
            if event is not None:
                self._tell(event)
                self.teller.learn(event)
            now = self.step == self._first or self.every_step or number == self.train.steps
            report = now or (self.leads and self.metric_buffer.seconds >= REPORT_S)
            due = self.checkpointer.is_due(self.step)
            stop, checkpoint, report, record = self._agree(report, self.leads and self.profiler.is_due, due)
            self.watch.mark(self._agreeing)
            self._settle()
            if report or stop or checkpoint:
                self._pending = (epoch, self.step, learning_rate, self.metric_buffer.take(self.step))
            if now or stop or checkpoint or self.strategy.device.type == "cpu":
                self._settle()
            self._step_timed(epoch, report, last=number == self.train.steps)
            if stop:
                self.reporter.phase(self.reporter.ending, f"after step {self.step}")
                return number, True
            if checkpoint:
                self.reporter.checkpoint_requested = False
                self.reporter.phase("saving")
                self.watch.pause()
                self.checkpointer.save(self._place(epoch, number))
                self.watch.resume()
                self.reporter.phase("training")
                self.metric_buffer.start()
        self.watch.pause()
        return self.train.steps, False

    def _unfreeze(self, epoch: int) -> None:
        """Trains a frozen backbone from now on, where its time has come."""
        if epoch <= self.job.freeze_epochs or not self.optimizer_step.holds:
            return
        self.optimizer_step.release()
        thaw(self.strategy.model)
        if self.job.freeze_batchnorm:
            still_norms(self.strategy.model)
        self.stepper.look_again()
        self.stepper.do_without_compiling("it was for the frozen model, and not all layers are as they were")
        self._tell(LogLine(text=f"From epoch {epoch} on all layers are trained"))

    def _passed_over(self, epoch: int, done: int) -> int:
        """Passes over those steps of `epoch` after the first `done` that are not to be trained; how many are done then."""
        count = min(self._skip_to - self.step, self.train.steps - done)
        if count <= 0:
            return done
        first, self.step = self.step + 1, self.step + count
        self.optimizer_step.go_to(self.step)
        self.reporter.progressed(self.step)
        which = (
            f"Steps {first:,} to {self.step:,} are passed over: their"
            if count > 1
            else f"Step {first:,} is passed over: its"
        )
        self._tell(Warned(code="steps_passed_over", message=f"{which} images led to a loss that is NaN or infinite."))
        return done + count

    def _step_timed(self, epoch: int, report: bool, last: bool) -> None:
        """A step has been made, at whose end its time is told where its metrics are."""
        if self.step == self._first:
            self.watch.start()  # the first carries much that the others do not
            return
        self.watch.step_done()
        if report and self.leads:
            self.teller.tell(self.step, epoch - self.begin.epoch, last=last)

    def _adjust(self) -> None:
        """Does what a command has asked to change; each rank by itself, since the batches stay the same."""
        workers, self.reporter.loader_workers_requested = self.reporter.loader_workers_requested, None
        if workers is not None:
            for split_loader in (self.train, self.val):
                split_loader.set_threads(workers)
            self._tell(LogLine(text=f"Images are now read by {workers} loader workers in each process"))

    def _place(self, epoch: int, done: int, *, validated: bool = False) -> TrainProgress:
        return TrainProgress(epoch=epoch, done=done, steps=self.train.steps, step=self.step, validated=validated)

    def _agree(self, report: bool, record: bool, due: bool = False) -> list[bool]:
        """Whether any rank was told to stop or to save, or finds a checkpoint due, or wants to report or to record: the
        same on all ranks."""
        own = self.reporter.stop_requested, self.reporter.checkpoint_requested or due, report, record
        return [bool(flag) for flag in self.strategy.collectives.all_reduce_max([int(flag) for flag in own])]

    def _stopped(self) -> bool:
        self.reporter.at("agree")
        stop = self._agree(report=False, record=False)[0]
        self.reporter.at("evaluate")
        return stop

    def _settle(self) -> None:
        """Adds the figures that were taken up over all ranks and tells them.

        On a GPU they are told a step after they were taken, when the device has the next step to do while
        this waits for the copy. Raises NotFinite on all ranks alike.
        """
        if self._pending is None:
            return
        (epoch, step, learning_rate, taken), self._pending = self._pending, None
        own = taken.read()
        if not own.steps:  # all of them were skipped, on all ranks alike
            return
        first_bad = self.strategy.collectives.all_reduce_max(
            [_NEVER - own.first_bad if own.first_bad is not None else 0]
        )[0]
        if first_bad:
            raise NotFinite(_NEVER - first_bad, "The loss", self.checkpointer.saved)
        mine = [own.loss, own.correct, own.judged, own.images, own.wait_s, self.strategy.loads_data]
        summed = self.strategy.collectives.all_reduce_sum(torch.tensor(mine, dtype=torch.float64)).tolist()
        loss, correct, judged, images, wait_s, loaders = summed
        wait_s /= loaders
        self._tell(
            StepMetrics(
                epoch=epoch,
                step=step,
                loss=loss / own.steps,
                accuracy=correct / images if judged and images else None,
                learning_rate=learning_rate,
                images_per_second=images / own.seconds,
                data_wait_s=wait_s / own.steps,
                compute_s=max(0.0, own.seconds - wait_s) / own.steps,
            )
        )

    def _validate(self, epoch: int) -> tuple[dict[str, float] | None, dict[str, Tensor] | None]:
        """The measures over the whole validation set, or None where it was stopped.

        The training's random numbers stay as they are, so that a run which was stopped here goes on with the same.
        Where an average of the weights is kept, it is what is measured, and with measures better than before
        its state is given too.
        """
        self.reporter.phase("validating")
        begun = time.perf_counter()
        measures = self.strategy.objective.metric()
        measured = None
        parts = self.strategy.evaluation_parts
        with self.optimizer_step.averaged(), preserve_rng(self.strategy.device):
            if not self.strategy.evaluate(self.val.epoch(epoch), measures, self._stopped):
                self.reporter.phase(self.reporter.ending, "during validation")
                return None, None
            values = measures.compute()
            seconds = time.perf_counter() - begun
            predicted = self._predicted(epoch)
            if self.optimizer_step.averages and self.checkpointer.is_better(values):
                measured = self.strategy.state_dict()
        if not all(map(math.isfinite, values.values())):
            raise NotFinite(self.step, "The validation loss", self.checkpointer.saved)
        if self.strategy.evaluation_parts != parts:
            self._tell(Warned(code="out_of_memory", message=self._halved()))
        self._tell(Validation(epoch=epoch, step=self.step, measures=values, images=self.val.images, seconds=seconds))
        of_classes, confusion = measures.per_class(), measures.confusion()
        if of_classes or confusion:
            confusion = confusion if len(confusion) <= MOST_CONFUSED else ()
            self._tell(ClassMeasures(epoch=epoch, step=self.step, measures=of_classes, confusion=confusion))
        if predicted is not None:
            self._tell(predicted)
        return values, measured

    def _predicted(self, epoch: int) -> Predicted | None:
        """What is to be shown of the model as it is measured now."""
        if not self.job.predictions or not self.val.images:
            return None
        if self._predictions is None:
            self._predictions = self._make_predictions()
        return self._predictions.predict(epoch, self.step)

    def _halved(self) -> str:
        parts = self.strategy.evaluation_parts
        return (
            f"{device_name(self.strategy)} ran out of memory in the validation after step {self.step:,}: each batch of it "
            f"is now gone through in {parts} parts, which gives the same measures."
        )

    def _tell(self, event: Any) -> None:
        if self.leads:
            self.reporter.send(event)
