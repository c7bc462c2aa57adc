"""What a run keeps of its training: last.pt after every epoch and stop, best.pt by the measure that the job names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.contract.events import CheckpointSaved, Warned
from engine.contract.worker import WorkerSpec
from engine.strategies.base import Strategy
from engine.training.checkpoints import CheckpointError, write_checkpoint
from engine.training.optimizers import Updater
from engine.training.report import Reporter

Kind = Literal["last", "best"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the run a checkpoint is written: after `done` of the `steps` steps of `epoch`, `step` over all."""

    epoch: int
    done: int
    steps: int
    step: int


class Saver:
    """Writes the checkpoints of a run. Every rank calls `save` with the others; rank 0 writes and tells.

    `best` holds the measures of the best epoch so far, `best_epoch`.
    """

    def __init__(
        self, spec: WorkerSpec, strategy: Strategy, updater: Updater, reporter: Reporter, classes: Sequence[str]
    ) -> None:
        self.best: dict[str, float] = {}
        self.best_epoch: int | None = None
        self._job = spec.job
        self._leads = spec.rank == 0
        self._folder = Path(spec.run_folder)
        self._strategy = strategy
        self._updater = updater
        self._reporter = reporter
        self._classes = tuple(classes)
        measures = strategy.task.entry.measures
        self._judge: Measure = next(measure for measure in measures if measure.id == self._job.best_by)

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self.path("last").exists()

    def path(self, kind: Kind) -> Path:
        return self._folder / "checkpoints" / f"{kind}.pt"

    def is_better(self, measures: dict[str, float]) -> bool:
        value, best = measures.get(self._judge.id), self.best.get(self._judge.id)
        if value is None or best is None:
            return value is not None
        return value > best if self._judge.higher_is_better else value < best

    def save(
        self, place: Place, measures: dict[str, float] | None = None, measured: dict[str, Tensor] | None = None
    ) -> None:
        """Writes last.pt, and best.pt where `measures` are the best so far. A full disk does not end the training.

        `measured` is the state of the model that was measured, where that is not the present one.
        """
        model = self._strategy.state_dict()
        optimizer = self._strategy.optimizer_state(self._updater)
        saved_best = False
        if self._leads:
            if measures is not None and self.is_better(measures):
                saved_best = self._write("best", measured or model, place, measures)
            content = {
                "model": model,
                "optimizer": optimizer,
                "epoch": place.epoch,
                "done": place.done,
                "steps": place.steps,
                "step": place.step,
                "best": measures if saved_best else self.best,
                "best_epoch": place.epoch if saved_best else self.best_epoch,
                "classes": self._classes,
                "job": msgspec.to_builtins(self._job),
            }
            self._write("last", content, place, measures)
        if self._strategy.agree([int(saved_best)])[0]:
            assert measures is not None
            self.best, self.best_epoch = measures, place.epoch

    def _write(self, kind: Kind, content: Any, place: Place, measures: dict[str, float] | None) -> bool:
        path = self.path(kind)
        try:
            written = write_checkpoint(content, path)
        except CheckpointError as error:
            self._reporter.send(Warned(code="checkpoint_failed", message=str(error), rank=0))
            return False
        self._reporter.send(
            CheckpointSaved(
                kind=kind,
                path=path.relative_to(self._folder).as_posix(),
                epoch=place.epoch,
                step=place.step,
                bytes=written.bytes,
                seconds=written.seconds,
                measure=(measures or {}).get(self._judge.id),
            )
        )
        return True
