"""What a run keeps of its training: last.pt at the ends of epochs and as often as the job says, those before it, and
best.pt by the measure that the job names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import torch
from msgspec import structs
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.contract.events import CheckpointSaved, Warned
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.data.randomness import RandomStreams
from engine.optim.optimizer_step import OptimizerStep, joined
from engine.runs.folder import RunFolder
from engine.strategies.base import Strategy, synchronize
from engine.torch_compat import is_compiled
from engine.training.callbacks.early_stopping import EarlyStopping
from engine.training.checkpointing.checkpoint_files import (
    CheckpointError,
    Written,
    drop_older,
    older_name,
    write_checkpoint,
)
from engine.training.checkpointing.elsewhere import NotSavedElsewhere, how_to_resume, save_elsewhere
from engine.training.finite import not_finite
from engine.training.randomness import random_state
from engine.training.report import Reporter

SHARE = 0.01
"""The share of a run's time that writing at the ends of epochs may take, since it costs cores and wears the disk."""
LATEST_S = 60.0
"""An epoch that ends this long after the last checkpoint is always saved."""
COMPLETED_S, STOPPED_S = 300.0, 60.0
"""How long the last state of a run is kept in memory where the disk does not take it, and tried to be saved again: of
one that is complete, and of one that is to give its devices back."""
AGAIN_S = 2.0
"""Seconds between two such attempts."""

Kind = Literal["last", "best"]


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """Where in the run a checkpoint is written: after `done` of the `steps` steps of `epoch`, `step` over all.

    `validated` says of an epoch with all its steps done whether they have been validated, too.
    """

    epoch: int
    done: int
    steps: int
    step: int
    validated: bool = False


@dataclass(frozen=True, slots=True)
class _Best:
    """The best state that is not on disk yet, with what was measured of it; `state` is rank 0's alone, whole when
    `copied` returns.
    """

    state: dict[str, Tensor] | None
    copied: Callable[[], None]
    progress: TrainProgress
    measures: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Last:
    """What last.pt is to hold, whole when `copied` returns; the training stood still `pause_s` for it."""

    content: dict[str, Any]
    copied: Callable[[], None]
    progress: TrainProgress
    measures: dict[str, float] | None
    pause_s: float


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """What `save` left to the writer; on rank 0 `written` gives whether best.pt was among it and is on disk."""

    best: _Best | None
    written: Future[bool] | None


class Checkpointer:
    """Writes the checkpoints of a run beside the training. Rank 0 writes, on a thread of its own, and tells.

    One checkpoint is under way at a time, so that main memory holds one copy of the state at most, and one of the best
    model; what needs its outcome waits for it. Every rank calls `save`, `finish`, `is_better` and `saved` with the
    others. Leaving it as a context manager waits for the writer of this rank alone, as the end of a failed run must,
    and has it write the best state that is not on disk yet.

    A state with numbers that are not finite is never written: the writer looks through its copy before. Buffers that
    were not finite in the model as it was built, as masks, are `meant` so.

    `best` holds the measures of the best epoch that is on disk, `best_epoch`; both are the same on all ranks.
    `stopping` tells when the run may end early, and goes into every last.pt as it is then. On rank 0, `best_sha256`
    is best.pt's checksum, and `newest` where the last.pt in this run's folder was written, None while there is none.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        strategy: Strategy,
        optimizer_step: OptimizerStep,
        reporter: Reporter,
        classes: Sequence[str],
        *,
        streams: RandomStreams,
        meant: Collection[str] = (),
    ) -> None:
        self.best: dict[str, float] = {}
        self.best_epoch: int | None = None
        self.best_sha256 = ""
        self.newest: TrainProgress | None = None
        self._job = spec.job
        self._leads = spec.rank == 0
        self._folder = Path(spec.run_folder)
        self._strategy = strategy
        self._optimizer_step = optimizer_step
        self._reporter = reporter
        self._classes = tuple(classes)
        self._streams = streams
        self._meant = frozenset(meant)
        measures = strategy.objective.entry.measures
        chosen = self._job.best_by or measures[0].id
        self._judge: Measure = next(measure for measure in measures if measure.id == chosen)
        self.stopping = EarlyStopping(self._job.patience, self._judge)
        # Without a device of its own the thread would wake the first GPU as it waits for this rank's.
        begin = partial(torch.cuda.set_device, strategy.device) if strategy.device.type == "cuda" else None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint", initializer=begin)
        self._under_way: _UnderWay | None = None
        self._best: _Best | None = None
        self._best_again = False
        """Whether the last attempt to write the best state failed."""
        self._insisting = False
        self._refusal = ""
        self._unwritten: tuple[_Last, _Best | None] | None = None
        """The part of the latest checkpoint that could not be written, and why; on rank 0 only, kept until the next
        one."""
        self._due = 0.0
        self._saved_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        waiting = self._best
        if waiting is not None and waiting.state is not None and not self._best_again:
            self._writer.submit(self._write_best, waiting)
        self._writer.shutdown()

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        self.finish()
        return self.path("last").exists()

    def path(self, kind: Kind) -> Path:
        return self._folder / "checkpoints" / f"{kind}.pt"

    def is_due(self, step: int) -> bool:
        """Whether the job wants a checkpoint after `step`, within an epoch; it is due if any rank says so."""
        steps, minutes = self._job.checkpoint_steps, self._job.checkpoint_minutes
        if steps and step % steps == 0:
            return True
        if not self._leads or not minutes or time.monotonic() - self._saved_at < 60 * minutes:
            return False
        # A disk that takes longer than that is not waited for.
        written = self._under_way.written if self._under_way is not None else None
        return written is None or written.done()

    def is_better(self, measures: dict[str, float]) -> bool:
        self.finish()
        known = self._best.measures if self._best is not None else self.best
        value, best = measures.get(self._judge.id), known.get(self._judge.id)
        if value is None or best is None:
            return value is not None
        return value > best if self._judge.higher_is_better else value < best

    def save(
        self,
        progress: TrainProgress,
        measures: dict[str, float] | None = None,
        measured: dict[str, Tensor] | None = None,
        *,
        may_wait: bool = False,
    ) -> None:
        """Copies the state, of which last.pt is written, and best.pt where `measures` are the best so far.

        `measured` is the state of the model that was measured, where that is the averages'. Where it `may_wait`
        and the checkpoint before is young for what writing takes, nothing is written, and a best state is kept for the
        next one. A full disk does not end the training.
        """
        begun = time.perf_counter()
        better = measures is not None and self.is_better(measures)
        gathered = better and not self._optimizer_step.averages
        model = self._strategy.state_dict() if gathered else measured
        if better:
            assert measures is not None
            self._best = _Best(model, _all_asked_of(self._strategy.device), progress, measures)
            self._best_again = False
        strategy = self._strategy
        young = self._leads and time.monotonic() < self._due
        if may_wait and strategy.collectives.all_reduce_max([int(young)])[0]:
            return
        self.finish()
        self._unwritten = None
        if not gathered:
            model = strategy.state_dict()
        optimizer = optimizer_state(strategy, self._optimizer_step)
        random = strategy.collectives.gather_objects(random_state(strategy.device))
        best, self._best = self._best, None
        written = None
        self._saved_at = time.monotonic()
        if self._leads:
            content = {
                "model": model,
                "optimizer": optimizer,
                "random": random,
                "seed_rule": self._streams.rule,
                "epoch": progress.epoch,
                "done": progress.done,
                "steps": progress.steps,
                "step": progress.step,
                "validated": progress.validated,
                "shares": strategy.shares,
                "best": self.best,
                "best_epoch": self.best_epoch,
                "best_sha256": self.best_sha256,
                "stopping": self.stopping.state_dict(),
                "classes": self._classes,
                "job": msgspec.to_builtins(_as_it_trains(strategy)),
                "parts": {"asked": strategy.spec.job.accumulation, "evaluation": strategy.evaluation_parts},
                "cut": msgspec.to_builtins(strategy.cut),
            }
            copied = _all_asked_of(strategy.device)
            last = _Last(content, copied, progress, measures, pause_s=time.perf_counter() - begun)
            self._best_again = False
            written = self._writer.submit(self._write_both, last, best)
        self._under_way = _UnderWay(best, written)

    def insist(self, *, stopped: bool, broken_off: Callable[[], bool]) -> str:
        """As `finish`, after the last checkpoint of a run, which was `stopped` or is complete: what the disk does not
        take is tried again for a while, unless that is `broken_off`, or saved in another folder that the user names.
        Rank 0 gets why it is not in the run's folder at last, "" where it is.
        """
        self.finish()
        self._reporter.at("save")
        within_s = STOPPED_S if stopped else COMPLETED_S
        deadline = time.monotonic() + within_s
        self._insisting = True
        if self._unwritten is not None:
            self._reporter.send(Warned(code="unsaved", message=self._said_of_trying(within_s), rank=0))
        saved_best, elsewhere = False, None
        folders = self._reporter.folders_requested
        while self._unwritten is not None and elsewhere is None and time.monotonic() < deadline and not broken_off():
            time.sleep(AGAIN_S)
            saved_best = self._writer.submit(self._write_both, *self._unwritten).result() or saved_best
            while self._unwritten is not None and elsewhere is None and folders:
                elsewhere = self._writer.submit(self._write_elsewhere, Path(folders.popleft())).result()
                saved_best |= elsewhere is not None and self._unwritten[1] is not None
        if self._strategy.collectives.all_reduce_max([int(saved_best)])[0]:
            assert self._best is not None
            self.best, self.best_epoch, self._best = self._best.measures, self._best.progress.epoch, None
        if self._unwritten is None:
            return ""
        step = self._unwritten[0].progress.step
        if elsewhere is not None:
            onward = how_to_resume(RunFolder(self._folder), elsewhere, finished=not stopped)
            return f"{self._refusal} The state after step {step:,} was saved to {elsewhere.path}. {onward}"
        what = f"the state after step {step:,} is lost"
        held = (
            f"last.pt contains step {self.newest.step:,}"
            if self.newest is not None
            else "this execution saved no last.pt"
        )
        return f"{self._refusal} Therefore {what}; {held}. Free some space there or allow writing, then resume the run."

    def _said_of_trying(self, within_s: float) -> str:
        return (
            f"{self._refusal} The final state is kept in memory, and saving is retried for {within_s:.0f} "
            "s. Free some space there or allow writing; or choose another folder: `footplate save "
            f"{self._folder.name} --to FOLDER`."
        )

    def finish(self) -> None:
        """Waits until what `save` began is on disk, or has failed and been told of."""
        if self._under_way is None:
            return
        self._reporter.at("save")
        done, self._under_way = self._under_way, None
        saved_best = done.written is not None and done.written.result()
        saved, again = self._strategy.collectives.all_reduce_max([int(saved_best), int(self._best_again)])
        if saved:
            assert done.best is not None
            self.best, self.best_epoch = done.best.measures, done.best.progress.epoch
        elif again:
            self._best = done.best  # for the next checkpoint, by which the disk may take it

    def _write_both(self, last: _Last, best: _Best | None) -> bool:
        """Whether best.pt was written; last.pt, which tells of it, comes after it."""
        last.copied()
        self._refusal = ""
        begun = time.monotonic()
        saved_best = best is not None and self._write_best(best)
        if saved_best:
            assert best is not None
            last.content.update(best=best.measures, best_epoch=best.progress.epoch, best_sha256=self.best_sha256)
        if self._write("last", last.content, last.progress, last.measures, last.pause_s):
            self.newest = last.progress
        again = best if self._best_again and not saved_best else None
        self._unwritten = (last, again) if self._refusal else None
        ended = time.monotonic()
        self._due = ended + min((ended - begun) / SHARE, LATEST_S)
        return saved_best

    def _write_elsewhere(self, folder: Path) -> RunFolder | None:
        """What the run's own disk has not taken, in `folder`: where, None where it is not saved there either."""
        assert self._unwritten is not None
        last, best = self._unwritten
        content: dict[str, Any] | None = None
        if not self._spoilt("last", last.content):
            told = {"best": best.measures, "best_epoch": best.progress.epoch} if best is not None else {}
            content = last.content | told
        state = best.state if best is not None else None
        try:
            elsewhere = save_elsewhere(folder, RunFolder(self._folder), self._job, content, state)
        except NotSavedElsewhere as error:
            message = f"The state after step {last.progress.step:,} was not saved there. {error} Choose another folder."
            self._reporter.send(Warned(code="not_saved_elsewhere", message=message, rank=0))
            return None
        message = f"The state after step {last.progress.step:,} was saved to {elsewhere.path}."
        self._reporter.send(Warned(code="saved_elsewhere", message=message, rank=0))
        return elsewhere

    def _write_best(self, best: _Best) -> bool:
        best.copied()
        written = self._write("best", best.state, best.progress, best.measures)
        if written is not None:
            self.best_sha256 = written.sha256
        return written is not None

    def _write(
        self, kind: Kind, content: Any, progress: TrainProgress, measures: dict[str, float] | None, pause_s: float = 0.0
    ) -> Written | None:
        path = self.path(kind)
        spoilt = self._spoilt(kind, content)
        if spoilt:
            message = (
                f"{path.name} was not updated: after step {progress.step:,}, {spoilt} contains NaN or infinite "
                "values. The previous checkpoint is kept. Try a lower learning rate, or fp32 if another "
                "precision was chosen."
            )
            self._reporter.send(Warned(code="checkpoint_not_finite", message=message, rank=0))
            return None
        before = self.newest if kind == "last" and self._job.keep_checkpoints else None
        # What was written of the same step before its validation is not worth keeping.
        aside = older_name(before.epoch, before.step) if before is not None and before.step != progress.step else ""
        try:
            written = write_checkpoint(content, path, aside=aside)
        except CheckpointError as error:
            self._best_again = self._best_again or kind == "best"
            self._refusal = error.why
            if not self._insisting:
                self._reporter.send(Warned(code="checkpoint_failed", message=str(error), rank=0))
            return None
        if kind == "last":  # before the report, after which readers may measure the free space
            drop_older(path.parent, self._job.keep_checkpoints)
        self._reporter.send(
            CheckpointSaved(
                kind=kind,
                path=path.relative_to(self._folder).as_posix(),
                epoch=progress.epoch,
                step=progress.step,
                bytes=written.bytes,
                seconds=written.seconds,
                pause_s=pause_s,
                measure=(measures or {}).get(self._judge.id),
            )
        )
        return written

    def _spoilt(self, kind: Kind, content: Any) -> str:
        """The name of a tensor that is not finite in what is to be written, "" where there is none."""
        state = content if kind == "best" else {name: content[name] for name in ("model", "optimizer")}
        return not_finite(state, self._meant)


def _as_it_trains(strategy: Strategy) -> Job:
    """The job with what is found out of it as the run goes on: in how many parts batches fit into memory, whether the
    model is compiled, and where it is cut, by which its norms are added up and its dropout is drawn.
    """
    return structs.replace(
        strategy.job,
        accumulation=strategy.accumulation,
        compile="on" if is_compiled(strategy.model) else "off",
        cuts=strategy.cut.cuts if strategy.cut is not None else strategy.job.cuts,
    )


def optimizer_state(strategy: Strategy, optimizer_step: OptimizerStep) -> dict[str, Any] | None:
    """What `optimizer_step` holds, whole, on the CPU and by the plain model's names, on rank 0; None elsewhere.

    All ranks call it together. A GPU may still be copying it until it is synchronized with.
    """
    rank, ranks = strategy.spec.rank, strategy.state_ranks
    # Ranks that hold shards put the state together; where each holds all of its part, the first replica's is enough.
    state = optimizer_step.state_dict() if strategy.dims.shard * strategy.dims.tensor > 1 or rank < ranks else None
    if ranks == 1:
        return state if rank == 0 else None
    synchronize(strategy.device)
    gathered = strategy.collectives.gather_states(state)
    return None if gathered is None else joined(gathered[:ranks])


def _all_asked_of(device: torch.device) -> Callable[[], None]:
    """What waits, on whatever thread, until `device` has done all that was asked of it up to now."""
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
