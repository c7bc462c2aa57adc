"""Schedule and content of a run's checkpoints.

last.pt is saved after epochs and on request, best.pt after the best validation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import torch
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.contract.events import Warned
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.optim.optimizer_step import OptimizerStep, merge_states
from engine.optim.shards import gather_shards
from engine.runs.folder import RunFolder
from engine.strategies.base import Strategy, synchronize
from engine.torch_compat import is_compiled
from engine.training.callbacks.early_stopping import EarlyStopping
from engine.training.checkpointing.checkpoint_writer import (
    BestState,
    CheckpointWriter,
    Snapshot,
    TrainProgress,
    WriteResult,
)
from engine.training.checkpointing.elsewhere import explain_how_to_resume
from engine.training.randomness import get_random_state
from engine.training.report import Reporter

RETRY_COMPLETED_S, RETRY_STOPPED_S = 300.0, 60.0
"""Maximum time for retrying to save the final state of a completed run, and of a stopped run, in seconds."""
RETRY_INTERVAL_S = 2.0
"""Seconds between two attempts to save the final state."""


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    """Snapshot that is being written.

    `best` is the state of the best model if it is written with the snapshot. `future` is the outcome of the write, or
    None on ranks other than 0.
    """

    best: BestState | None
    future: Future[WriteResult] | None


class Checkpointer:
    """Checkpointer that copies the state of a run, which the writer on rank 0 saves while the training continues.

    Snapshots are written one at a time, so that main memory holds at most one copy of the state and one of the best
    model. All ranks call `save`, `wait`, `is_better`, `has_checkpoint` and `retry_final_save` together. Leaving the
    context writes a best state that is not on the disk yet, and waits for the writer. This involves only the current
    rank, so that it works after a failure of the run, too.

    Attributes:
        best: Metrics of the best epoch whose model is on the disk, equal on all ranks.
        best_epoch: Number of the best epoch.
        stopping: Early stopping, whose state is part of last.pt.
        writer: Writer, which is used on rank 0.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        strategy: Strategy,
        optimizer_step: OptimizerStep,
        reporter: Reporter,
        classes: Sequence[str],
        *,
        expected_nonfinite: Collection[str] = (),
    ) -> None:
        self.best: dict[str, float] = {}
        self.best_epoch: int | None = None
        measures = strategy.objective.entry.metrics
        criterion_id = spec.job.checkpoints.best_by or measures[0].id
        self._criterion: Measure = next(measure for measure in measures if measure.id == criterion_id)
        self.stopping = EarlyStopping(spec.job.training.patience, self._criterion)
        self._folder = Path(spec.run_folder)
        self.writer = CheckpointWriter(
            self._folder,
            spec.job,
            self._criterion,
            strategy.device,
            reporter.send,
            expected_nonfinite=expected_nonfinite,
        )
        self._job = spec.job
        self._leads = spec.rank == 0  # True on the rank that writes checkpoints
        self._strategy = strategy
        self._optimizer_step = optimizer_step
        self._reporter = reporter
        self._classes = tuple(classes)
        self._pending_write: _PendingWrite | None = None  # snapshot whose outcome `wait` has not handled yet
        self._unsaved_best: BestState | None = None  # best state that is not submitted to the writer or was refused
        self._best_refused = False  # True if the disk refused the last best.pt
        self._saved_at = time.monotonic()  # time of the last snapshot, or of the start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Write the best state if it is not on the disk yet, and wait for the writer.

        A best state that could not be written before is not tried again.
        """
        best = self._unsaved_best
        has_unsaved_state = best is not None and best.state is not None  # only rank 0 has the state
        self.writer.close(best if has_unsaved_state and not self._best_refused else None)

    @property
    def has_checkpoint(self) -> bool:
        """True if the run folder contains a last.pt, so that the run can resume.

        This waits for the pending snapshot. All ranks must read it together.
        """
        self.wait()
        return self.writer.path("last").exists()

    def is_scheduled(self, step: int) -> bool:
        """Return True if the job requests a checkpoint after this number of steps."""
        steps = self._job.checkpoints.checkpoint_steps
        return bool(steps) and step % steps == 0

    def is_overdue(self) -> bool:
        """Return True on rank 0 if the last checkpoint is older than the interval that the job sets in minutes.

        Always False on other ranks, without an interval, and while a checkpoint is being written.
        """
        minutes = self._job.checkpoints.checkpoint_minutes
        if not self._leads or not minutes or time.monotonic() - self._saved_at < 60 * minutes:
            return False
        # If the disk needs longer than the interval, the training does not wait for it.
        future = self._pending_write.future if self._pending_write is not None else None
        return future is None or future.done()

    def is_better(self, measures: dict[str, float]) -> bool:
        """Return True if a validation's metrics are better than the best metrics until now.

        Of equal values of the metric that selects the checkpoint, the one with the lower loss is better. Waits for the
        pending snapshot first. All ranks must call it together.
        """
        self.wait()
        best_until_now = self._unsaved_best.measures if self._unsaved_best is not None else self.best
        return self._compute_sort_key(measures) > self._compute_sort_key(best_until_now)

    def _compute_sort_key(self, measures: dict[str, float]) -> tuple[float, ...]:
        """Return a sort key that is higher for better metrics of a validation.

        It is lowest if the metric that selects the checkpoint is missing.
        """
        value = measures.get(self._criterion.id)
        if value is None:
            return ()
        return value if self._criterion.higher_is_better else -value, -measures.get("loss", 0.0)

    def save(
        self,
        progress: TrainProgress,
        measures: dict[str, float] | None = None,
        averaged: dict[str, Tensor] | None = None,
        *,
        may_skip: bool = False,
    ) -> None:
        """Copy the state for last.pt and start writing it. Wait for the pending snapshot first.

        Do the same for best.pt if `measures` are the best until now. A full disk does not end the training. All ranks
        must call it together.

        Args:
            progress: Position in the run.
            measures: Metrics of the validation at the end of an epoch, or None within an epoch.
            averaged: State of the averaged model, if it was validated and is the best.
            may_skip: True to skip this checkpoint if writing takes long compared with the age of the previous
                checkpoint. A new best state is then saved with the next checkpoint.
        """
        started = time.perf_counter()
        strategy = self._strategy
        is_better = measures is not None and self.is_better(measures)
        is_trained_model_best = is_better and not self._optimizer_step.has_averages
        best_model = strategy.state_dict() if is_trained_model_best else averaged
        if is_better:
            assert measures is not None
            self._unsaved_best = BestState(best_model, _create_work_waiter(strategy.device), progress, measures)
            self._best_refused = False
        is_recent = self._leads and time.monotonic() < self.writer.next_epoch_end
        if may_skip and strategy.collectives.all_reduce_max([int(is_recent)])[0]:  # all ranks skip together
            return
        self.wait()
        self.writer.unwritten = None
        content = self._copy_state(best_model if is_trained_model_best else strategy.state_dict(), progress)
        best, self._unsaved_best = self._unsaved_best, None
        future = None
        self._saved_at = time.monotonic()
        if content is not None:
            pause_s = time.perf_counter() - started
            snapshot = Snapshot(content, _create_work_waiter(strategy.device), progress, measures, pause_s, best)
            future = self.writer.submit(snapshot)
        self._pending_write = _PendingWrite(best, future)

    def _copy_state(self, model: dict[str, Tensor] | None, progress: TrainProgress) -> dict[str, Any] | None:
        """Collect the content of last.pt, and return it on rank 0. Other ranks return None.

        All ranks call it together.
        """
        strategy = self._strategy
        optimizer = gather_optimizer_state(strategy, self._optimizer_step)
        random = strategy.collectives.gather_objects(get_random_state(strategy.gpus))
        if not self._leads:
            return None
        return {
            "model": model,
            "optimizer": optimizer,
            "random": random,
            "epoch": progress.epoch,
            "done": progress.done,
            "steps": progress.steps,
            "step": progress.step,
            "validated": progress.validated,
            "shares": strategy.resolved_job.shares,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "best_sha256": self.writer.best_sha256,
            "stopping": self.stopping.state_dict(),
            "classes": self._classes,
            "job": msgspec.to_builtins(_make_resolved_job(strategy).values()),
            "parts": {"asked": strategy.spec.job.training.accumulation, "evaluation": strategy.evaluation_parts},
            "model_split": msgspec.to_builtins(strategy.model_split),
        }

    def wait(self) -> None:
        """Wait until the pending snapshot is written or refused by the disk. All ranks must call it together.

        Afterwards, all ranks have the same best epoch. Its model is on the disk, unless the disk has refused it. The
        next checkpoint then contains it again.
        """
        if self._pending_write is None:
            return
        self._reporter.set_activity("save")
        pending, self._pending_write = self._pending_write, None
        result = pending.future.result() if pending.future is not None else WriteResult()
        flags = [int(result.best_saved), int(result.best_refused)]  # both 0 if rank 0 had no best model to save
        is_saved, is_refused = self._strategy.collectives.all_reduce_max(flags)
        self._best_refused = bool(is_refused)
        if is_saved:
            self._set_best(pending.best)
        elif is_refused:
            self._unsaved_best = pending.best  # retry with the next checkpoint

    def _set_best(self, best: BestState | None) -> None:
        """Store the metrics and the epoch of `best`, the best state, which is now on the disk."""
        assert best is not None
        self.best, self.best_epoch = best.measures, best.progress.epoch

    def retry_final_save(self, *, stopped: bool, is_cancelled: Callable[[], bool]) -> str:
        """Wait for the last checkpoint of a run. If the disk refuses it, retry for a limited time.

        The limit is `RETRY_STOPPED_S` if the run was `stopped` before its end, otherwise `RETRY_COMPLETED_S`.
        Meanwhile, the user may name another folder for it. `is_cancelled` returns True once the user cancels. On rank
        0, return "" if the final state is in the run folder, otherwise an explanation. All ranks must call it together.
        """
        self.wait()
        self._reporter.set_activity("save")
        timeout_s = RETRY_STOPPED_S if stopped else RETRY_COMPLETED_S
        writer, deadline = self.writer, time.monotonic() + timeout_s
        writer.caller_reports_refusals = True  # the returned explanation replaces a warning for each attempt
        if writer.unwritten is not None:
            message = (
                f"{writer.refusal} The final state is kept in memory, and saving is retried for {timeout_s:.0f} "
                "s. Free some space there or allow writing; or choose another folder: `footplate save "
                f"{self._folder.name} --to FOLDER`."
            )
            self._reporter.send(Warned(code="unsaved", message=message, rank=0))
        best_saved, copy = False, None
        folders = self._reporter.folders_requested
        while writer.unwritten is not None and copy is None and time.monotonic() < deadline and not is_cancelled():
            time.sleep(RETRY_INTERVAL_S)
            best_saved |= writer.submit(writer.unwritten).result().best_saved
            while writer.unwritten is not None and copy is None and folders:  # folders that the user has named
                copy = writer.save_elsewhere(Path(folders.popleft()))
                best_saved |= copy is not None and writer.unwritten.best is not None
        # Only rank 0 writes, but all ranks must agree on the best epoch.
        if self._strategy.collectives.all_reduce_max([int(best_saved)])[0]:
            self._set_best(self._unsaved_best)
            self._unsaved_best = None
        return self._explain_unsaved(copy, stopped=stopped)

    def _explain_unsaved(self, copy: RunFolder | None, *, stopped: bool) -> str:
        """Explain why the final state is not in the run folder, and what the user can do. Return "" if it is there.

        `copy` is the copy of the run folder in which the state was saved instead, or None. `stopped` is True if the run
        was stopped before its end.
        """
        writer = self.writer
        if writer.unwritten is None:
            return ""
        state = writer.describe_unwritten()
        if copy is not None:
            remedy = explain_how_to_resume(RunFolder(self._folder), copy, finished=not stopped)
            return f"{writer.refusal} {state} was saved to {copy.path}. {remedy}"
        on_disk = "last.pt wasn't saved either"
        if writer.newest is not None:
            on_disk = f"last.pt contains step {writer.newest.step:,}"
        remedy = "Free some space there or allow writing, then resume the run."
        return f"{writer.refusal} {state} wasn't saved; {on_disk}. {remedy}"


def _make_resolved_job(strategy: Strategy) -> Job:
    """Return the job with the accumulation, compilation and pipeline split that the run uses."""
    if is_compiled(strategy.model):
        compile_setting = "on"
    elif strategy.job.precision.compile == "auto":
        compile_setting = "auto"  # the run was stopped before the choice, which the resumed run makes
    else:
        compile_setting = "off"  # also if training has given up compiling
    return strategy.job.with_fields(
        accumulation=strategy.accumulation,
        compile=compile_setting,
        split_points=(strategy.model_split or strategy.job.parallel).split_points,
    )


def gather_optimizer_state(strategy: Strategy, optimizer_step: OptimizerStep) -> dict[str, Any] | None:
    """Gather the complete optimizer state on the CPU of rank 0, by parameter names of the plain model.

    Other ranks return None. All ranks call it together. A GPU may still be copying the state, so synchronize with it
    before reading.
    """
    rank, ranks = strategy.spec.rank, strategy.state_ranks
    if strategy.dims.shard * strategy.dims.tensor > 1:  # ranks assemble tensors together, one by one
        state = optimizer_step.state_dict(gather_shards)
        return state if rank == 0 else None
    if ranks == 1:
        return optimizer_step.state_dict() if rank == 0 else None
    # The ranks of the first replica have everything. Rank 0 copies its state; the others send theirs.
    state = {}
    if rank < ranks:
        state = optimizer_step.state_dict() if rank == 0 else optimizer_step.state_dict(lambda tensor, _: tensor)
    synchronize(strategy.device)
    gathered = strategy.collectives.gather_states(state)
    return None if gathered is None else merge_states(gathered[:ranks])


def _create_work_waiter(device: torch.device) -> Callable[[], None]:
    """Return a function that waits until `device` has done the work that is queued now.

    Any thread may call the function.
    """
    if device.type != "cuda":
        return lambda: None
    event = torch.cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(device))
    return event.synchronize
