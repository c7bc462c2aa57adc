"""What a run keeps of its training: last.pt after every epoch and stop, best.pt by the measure that the job names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import torch
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


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """What `save` left to the writer; on rank 0 `written` gives whether best.pt was among it and is on disk."""

    place: Place
    measures: dict[str, float] | None
    written: Future[bool] | None


class Saver:
    """Writes the checkpoints of a run beside the training. Rank 0 writes, on a thread of its own, and tells.

    One checkpoint is under way at a time, so that main memory holds one copy of the state at most; what needs its
    outcome waits for it. Every rank calls `save`, `finish`, `is_better` and `saved` with the others. Leaving it as a
    context manager waits for the writer of this rank alone, as the end of a failed run must.

    `best` holds the measures of the best epoch that is on disk, `best_epoch`; both are the same on all ranks.
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
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._under_way: _UnderWay | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown()

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        self.finish()
        return self.path("last").exists()

    def path(self, kind: Kind) -> Path:
        return self._folder / "checkpoints" / f"{kind}.pt"

    def is_better(self, measures: dict[str, float]) -> bool:
        self.finish()
        value, best = measures.get(self._judge.id), self.best.get(self._judge.id)
        if value is None or best is None:
            return value is not None
        return value > best if self._judge.higher_is_better else value < best

    def save(
        self, place: Place, measures: dict[str, float] | None = None, measured: dict[str, Tensor] | None = None
    ) -> None:
        """Copies the state, of which last.pt is written, and best.pt where `measures` are the best so far.

        `measured` is the state of the model that was measured, where that is not the present one. A full disk does not
        end the training.
        """
        self.finish()
        better = measures is not None and self.is_better(measures)
        model = self._strategy.state_dict()
        optimizer = self._strategy.optimizer_state(self._updater)
        written = None
        if self._leads:
            content = {
                "model": model,
                "optimizer": optimizer,
                "epoch": place.epoch,
                "done": place.done,
                "steps": place.steps,
                "step": place.step,
                "best": self.best,
                "best_epoch": self.best_epoch,
                "classes": self._classes,
                "job": msgspec.to_builtins(self._job),
            }
            best = (measured or model) if better else None
            copied = _all_asked_of(self._strategy.device)
            written = self._writer.submit(self._write_both, content, best, place, measures, copied)
        self._under_way = _UnderWay(place, measures, written)

    def finish(self) -> None:
        """Waits until what `save` began is on disk, or has failed and been told of."""
        if self._under_way is None:
            return
        self._reporter.at("save")
        done, self._under_way = self._under_way, None
        saved_best = done.written is not None and done.written.result()
        if self._strategy.agree([int(saved_best)])[0]:
            assert done.measures is not None
            self.best, self.best_epoch = done.measures, done.place.epoch

    def _write_both(
        self,
        content: dict[str, Any],
        best: dict[str, Tensor] | None,
        place: Place,
        measures: dict[str, float] | None,
        copied: Callable[[], None],
    ) -> bool:
        """Whether best.pt was written; last.pt, which tells of it, comes after it."""
        copied()
        saved_best = best is not None and self._write("best", best, place, measures)
        if saved_best:
            content |= {"best": measures, "best_epoch": place.epoch}
        self._write("last", content, place, measures)
        return saved_best

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


def _all_asked_of(device: torch.device) -> Callable[[], None]:
    """What waits, on whatever thread, until `device` has done all that was asked of it up to now."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
