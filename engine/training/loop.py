"""The training itself: epochs, steps, validation, checkpoints."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import msgspec
import torch

from engine.contract.catalogue import Measure
from engine.contract.events import CheckpointSaved, EpochStarted, StepMetrics, Validation, Warned
from engine.contract.worker import WorkerDone, WorkerSpec
from engine.strategies.base import Strategy
from engine.training.checkpoints import CheckpointError, write_checkpoint
from engine.training.feed import Feed
from engine.training.optimizers import Updater
from engine.training.report import Reporter
from engine.training.tally import NotFinite, Taken, Tally

REPORT_S = 0.15
"""Seconds between step metrics, where steps are faster than that."""

_NEVER = 1 << 62


class Loop:
    """Trains from the first epoch to the last or to a stop. Every rank runs it in step with the others.

    Rank 0 reports for all: what it tells is summed over the ranks, which so learn it too. With
    `every_step`, each step's metrics are reported.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        strategy: Strategy,
        updater: Updater,
        reporter: Reporter,
        *,
        train: Feed,
        val: Feed,
        every_step: bool = False,
    ) -> None:
        self.job = spec.job
        self.strategy = strategy
        self.updater = updater
        self.train = train
        self.val = val
        self.reporter = reporter
        self.every_step = every_step
        self.leads = spec.rank == 0
        self.folder = Path(spec.run_folder)
        measures = strategy.task.entry.measures
        self.judge: Measure = next(measure for measure in measures if measure.id == self.job.best_by)
        self.tally = Tally()
        self._pending: tuple[int, int, float, Taken] | None = None
        self.step = 0
        self.best: dict[str, float] = {}
        self.best_epoch: int | None = None

    def run(self) -> WorkerDone:
        """Trains. Raises NotFinite where the loss is no number any more."""
        stopped = False
        for epoch in range(1, self.job.epochs + 1):
            stopped = self._train(epoch)
            measures = None if stopped else self._validate(epoch)
            if not stopped:
                self.updater.epoch_ended()
                stopped = measures is None
            if not stopped:
                self.reporter.phase("saving")
            self._save(epoch, measures)
            if stopped:
                break
        return WorkerDone(stopped=stopped, best=self.best, best_epoch=self.best_epoch)

    def _train(self, epoch: int) -> bool:
        """One epoch; returns whether it was stopped."""
        self._tell(EpochStarted(epoch=epoch))
        self.reporter.phase("training")
        batches = self.train.epoch(epoch)
        self.tally.start()
        for number in range(1, self.train.steps + 1):
            batch = next(batches)
            learning_rate = self.updater.learning_rate
            result = self.strategy.step(batch, self.updater)
            self.step += 1
            self.tally.add(result, batch.wait_s if batch is not None else 0.0)
            self.reporter.progressed(self.step)
            now = self.step == 1 or self.every_step or number == self.train.steps
            stop, checkpoint, report = self._agree(now or (self.leads and self.tally.seconds >= REPORT_S))
            self._settle()
            if report or stop or checkpoint:
                self._pending = (epoch, self.step, learning_rate, self.tally.take(self.step))
            if now or stop or checkpoint or self.strategy.device.type == "cpu":
                self._settle()
            if stop:
                self.reporter.phase("stopping", f"after step {self.step}")
                return True
            if checkpoint:
                self.reporter.checkpoint_requested = False
                self.reporter.phase("saving")
                self._save(epoch, None)
                self.reporter.phase("training")
                self.tally.start()
        return False

    def _agree(self, report: bool) -> tuple[bool, bool, bool]:
        """Whether any rank was told to stop or to save, or wants to report: the same on all ranks."""
        stop, checkpoint = self.reporter.stop_requested, self.reporter.checkpoint_requested
        agreed = self.strategy.agree((int(stop), int(checkpoint), int(report)))
        return bool(agreed[0]), bool(agreed[1]), bool(agreed[2])

    def _stopped(self) -> bool:
        return self._agree(False)[0]

    def _settle(self) -> None:
        """Adds the figures that were taken up over all ranks and tells them.

        On a GPU they are told a step after they were taken, when the device has the next step to do while
        this waits for the copy. Raises NotFinite on all ranks alike.
        """
        if self._pending is None:
            return
        (epoch, step, learning_rate, taken), self._pending = self._pending, None
        own = taken.read()
        first_bad = self.strategy.agree([_NEVER - own.first_bad if own.first_bad is not None else 0])[0]
        if first_bad:
            raise NotFinite(_NEVER - first_bad, "The loss", self._path("last").exists())
        mine = [own.loss, own.correct, own.pictures, own.wait_s, float(self.strategy.loads_data)]
        loss, correct, pictures, wait_s, loaders = self.strategy.total(torch.tensor(mine, dtype=torch.float64)).tolist()
        wait_s /= loaders
        self._tell(
            StepMetrics(
                epoch=epoch,
                step=step,
                loss=loss / own.steps,
                accuracy=correct / pictures if pictures else None,
                learning_rate=learning_rate,
                images_per_second=pictures / own.seconds,
                data_wait_s=wait_s / own.steps,
                compute_s=max(0.0, own.seconds - wait_s) / own.steps,
            )
        )

    def _validate(self, epoch: int) -> dict[str, float] | None:
        """The measures over the whole validation set, or None where it was stopped."""
        self.reporter.phase("validating")
        begun = time.perf_counter()
        measures = self.strategy.task.measures()
        if not self.strategy.evaluate(self.val.epoch(epoch), measures, self._stopped):
            self.reporter.phase("stopping", "during validation")
            return None
        values = measures.compute()
        if not all(map(math.isfinite, values.values())):
            raise NotFinite(self.step, "The validation loss", self._path("last").exists())
        seconds = time.perf_counter() - begun
        self._tell(
            Validation(epoch=epoch, step=self.step, measures=values, pictures=self.val.pictures, seconds=seconds)
        )
        return values

    def _save(self, epoch: int, measures: dict[str, float] | None) -> None:
        """Writes last.pt, and best.pt where `measures` are the best so far. A full disk does not end the training."""
        model = self.strategy.state_dict()
        optimizer = self.strategy.optimizer_state(self.updater)
        better = measures is not None and self._is_better(measures)
        saved_best = False
        if self.leads:
            if better:
                saved_best = self._write("best", model, epoch, measures)
            content = {
                "model": model,
                "optimizer": optimizer,
                "epoch": epoch,
                "step": self.step,
                "best": measures if saved_best else self.best,
                "best_epoch": epoch if saved_best else self.best_epoch,
                "job": msgspec.to_builtins(self.job),
            }
            self._write("last", content, epoch, measures)
        if self.strategy.agree([int(saved_best)])[0]:
            assert measures is not None
            self.best, self.best_epoch = measures, epoch

    def _is_better(self, measures: dict[str, float]) -> bool:
        value, best = measures.get(self.judge.id), self.best.get(self.judge.id)
        if value is None or best is None:
            return value is not None
        return value > best if self.judge.higher_is_better else value < best

    def _write(self, kind: Any, content: Any, epoch: int, measures: dict[str, float] | None) -> bool:
        path = self._path(kind)
        try:
            written = write_checkpoint(content, path)
        except CheckpointError as error:
            self._tell(Warned(code="checkpoint_failed", message=str(error), rank=0))
            return False
        self._tell(
            CheckpointSaved(
                kind=kind,
                path=path.relative_to(self.folder).as_posix(),
                epoch=epoch,
                step=self.step,
                bytes=written.bytes,
                seconds=written.seconds,
                measure=(measures or {}).get(self.judge.id),
            )
        )
        return True

    def _path(self, kind: str) -> Path:
        return self.folder / "checkpoints" / f"{kind}.pt"

    def _tell(self, event: Any) -> None:
        if self.leads:
            self.reporter.send(event)
