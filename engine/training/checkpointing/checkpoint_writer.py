"""Writer thread on rank 0 that checks copies of the training state and writes them to the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from engine.contract.catalogue import Measure
from engine.contract.events import CheckpointSaved, Event, Warned
from engine.contract.job import Job
from engine.runs.folder import RunFolder
from engine.training.checkpointing.checkpoint_files import (
    CheckpointError,
    WrittenFile,
    delete_older,
    name_older_checkpoint,
    write_checkpoint,
)
from engine.training.checkpointing.elsewhere import NotSavedElsewhere, save_elsewhere
from engine.training.finite import find_first_nonfinite

WRITING_FRACTION = 0.01
"""Maximum fraction of a run's time that may be spent on writing checkpoints at the ends of epochs.

Writing occupies cores and wears the disk.
"""
MAX_INTERVAL_S = 60.0
"""Maximum age of the previous checkpoint in seconds. If it is older, the one at the end of an epoch is not skipped."""

Kind = Literal["last", "best"]


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """Position in the training of a run, in epochs and steps.

    Attributes:
        epoch: Current epoch, from 1.
        done: Number of completed steps in this epoch.
        steps: Number of steps in each epoch.
        step: Number of completed steps in the entire run.
        validated: True if the epoch and its validation are complete.
    """

    epoch: int
    done: int
    steps: int
    step: int
    validated: bool = False


@dataclass(frozen=True, slots=True)
class BestState:
    """State of the best model until now, which is not on the disk yet, with its metrics.

    `state` is None on ranks other than 0. A GPU may still be copying it until `wait` returns.
    """

    state: dict[str, Tensor] | None
    wait: Callable[[], None]
    progress: TrainProgress
    measures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copy of a run's state for last.pt, and the best state for best.pt, which is written first.

    A GPU may still be copying the content until `wait` returns. `pause_s` is the time for which the training paused to
    make the snapshot.
    """

    content: dict[str, Any]
    wait: Callable[[], None]
    progress: TrainProgress
    measures: dict[str, float] | None
    pause_s: float
    best: BestState | None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Result of writing a snapshot.

    Attributes:
        best_saved: True if best.pt was written.
        best_refused: True if the disk refused best.pt. If both are False, the snapshot has no best state, or its best
            state is not finite.
    """

    best_saved: bool = False
    best_refused: bool = False


class CheckpointWriter:
    """Writer that writes snapshots one after another on a thread, and reports each of them to the supervisor.

    It never writes a state with NaN or infinite numbers, except in the buffers named in `expected_nonfinite`.

    Attributes:
        newest: Position in the run (epoch and step) of its last.pt, or None if this execution neither wrote one nor
            resumed from one.
        best_sha256: Checksum of best.pt, or "" if there is none.
        refusal: Reason why the disk refused the latest snapshot, or "" if it didn't.
        unwritten: Part of the latest snapshot that the disk refused, or None.
        caller_reports_refusals: True if the writer sends no warning when the disk refuses a snapshot, because the
            caller retries and reports it.
        next_epoch_end: Time (of `time.monotonic`) before which the checkpoint at the end of an epoch may be skipped.
    """

    def __init__(
        self,
        folder: Path,
        job: Job,
        criterion: Measure,
        device: torch.device,
        send: Callable[[Event], None],
        *,
        expected_nonfinite: Collection[str],
    ) -> None:
        self.newest: TrainProgress | None = None
        self.best_sha256 = ""
        self.refusal = ""
        self.unwritten: Snapshot | None = None
        self.caller_reports_refusals = False
        self.next_epoch_end = 0.0
        self._folder, self._job, self._criterion, self._send = folder, job, criterion, send
        self._expected_nonfinite = frozenset(expected_nonfinite)
        # Without this, waiting for this rank's GPU on the thread would initialize the first GPU, too.
        set_device = partial(torch.cuda.set_device, device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint", initializer=set_device)

    def path(self, kind: Kind) -> Path:
        """Return the path of last.pt or best.pt in the run folder."""
        return self._folder / "checkpoints" / f"{kind}.pt"

    def submit(self, snapshot: Snapshot) -> Future[WriteResult]:
        """Queue a snapshot. Its best.pt is written first, because its last.pt refers to that file."""
        return self._thread.submit(self._write_snapshot, snapshot)

    def save_elsewhere(self, folder: Path) -> RunFolder | None:
        """Save the unwritten part of the last snapshot in another folder.

        Return the copy of the run folder that was created. If that fails, too, report the failure and return None.
        """
        return self._thread.submit(self._write_elsewhere, folder).result()

    def describe_unwritten(self) -> str:
        """Describe for users what `save_elsewhere` saves.

        It is the last state or, if that contains NaN or infinite numbers, only the best state.
        """
        assert self.unwritten is not None
        if self._find_first_nonfinite("last", self.unwritten.content) and self.unwritten.best is not None:
            return f"The best state, after step {self.unwritten.best.progress.step:,},"
        return f"The state after step {self.unwritten.progress.step:,}"

    def close(self, best: BestState | None) -> None:
        """Write the state `best` unless it is None, and stop the thread."""
        if best is not None:
            self._thread.submit(self._write_best, best)
        self._thread.shutdown()

    def _write_snapshot(self, snapshot: Snapshot) -> WriteResult:
        """Write best.pt and last.pt, and remember in `unwritten` which of them the disk refused.

        Also sets `newest`, `refusal` and `next_epoch_end`.
        """
        snapshot.wait()
        self.refusal = ""
        started, best = time.monotonic(), snapshot.best
        best_saved = best is not None and self._write_best(best)
        best_refused = bool(self.refusal)
        if best is not None and best_saved:
            snapshot.content.update(best=best.measures, best_epoch=best.progress.epoch, best_sha256=self.best_sha256)
        if self._write("last", snapshot.content, snapshot.progress, snapshot.measures, snapshot.pause_s):
            self.newest = snapshot.progress
        self.unwritten = None
        if self.refusal:
            self.unwritten = replace(snapshot, best=best if best_refused else None)
        ended = time.monotonic()
        self.next_epoch_end = ended + min((ended - started) / WRITING_FRACTION, MAX_INTERVAL_S)
        return WriteResult(best_saved, best_refused)

    def _write_best(self, best: BestState) -> bool:
        """Write best.pt and remember its checksum. Returns False, after a warning, if it can't be written."""
        best.wait()
        written = self._write("best", best.state, best.progress, best.measures)
        if written is not None:
            self.best_sha256 = written.sha256
        return written is not None

    def _write(
        self, kind: Kind, content: Any, progress: TrainProgress, measures: dict[str, float] | None, pause_s: float = 0.0
    ) -> WrittenFile | None:
        """Write last.pt or best.pt (`kind`), and report it to the supervisor.

        If the job keeps older checkpoints, the previous last.pt is renamed first, and the oldest ones are deleted
        afterwards. If the content isn't finite, this warns and returns None. If the disk refuses the file, it sets
        `refusal` and returns None, with a warning unless `caller_reports_refusals`.

        `measures` are the metrics of the last validation. `pause_s` is the time in seconds for which training waited.
        """
        path = self.path(kind)
        nonfinite = self._find_first_nonfinite(kind, content)
        if nonfinite:
            message = (
                f"{path.name} was not updated: after step {progress.step:,}, {nonfinite} contains NaN or infinite "
                "values. The previous checkpoint is kept. Try a lower learning rate, or fp32 if another "
                "precision was chosen."
            )
            self._warn("checkpoint_not_finite", message)
            return None
        previous_name = self._name_previous(progress) if kind == "last" else ""
        try:
            written = write_checkpoint(content, path, previous_name=previous_name)
        except CheckpointError as error:
            self.refusal = error.why
            if not self.caller_reports_refusals:
                self._warn("checkpoint_failed", str(error))
            return None
        if kind == "last":  # before the report, because its readers may then measure the free space
            delete_older(path.parent, self._job.checkpoints.keep_checkpoints)
        self._send(
            CheckpointSaved(
                kind=kind,
                path=path.relative_to(self._folder).as_posix(),
                epoch=progress.epoch,
                step=progress.step,
                bytes=written.bytes,
                seconds=written.seconds,
                pause_s=pause_s,
                measure=(measures or {}).get(self._criterion.id),
            )
        )
        return written

    def _name_previous(self, progress: TrainProgress) -> str:
        """Return the name under which the current last.pt is kept when one for `progress` is written, or "" if it isn't."""
        previous = self.newest
        if previous is None or not self._job.checkpoints.keep_checkpoints:
            return ""
        if previous.step == progress.step:  # it was written before the validation at this step, and is outdated
            return ""
        return name_older_checkpoint(previous.epoch, previous.step)

    def _write_elsewhere(self, folder: Path) -> RunFolder | None:
        """Save the unwritten snapshot in `folder`, and report the outcome.

        A last state with NaN or infinite numbers is left out. The copy then has the run's previous last.pt. Returns the
        copy of the run folder, or None if it can't be saved.
        """
        assert self.unwritten is not None
        snapshot, best = self.unwritten, self.unwritten.best
        content: dict[str, Any] | None = None
        if not self._find_first_nonfinite("last", snapshot.content):
            best_facts = {"best": best.measures, "best_epoch": best.progress.epoch} if best is not None else {}
            content = snapshot.content | best_facts
        best_model = best.state if best is not None else None
        state_text = f"{self.describe_unwritten()} was"
        try:
            copy = save_elsewhere(folder, RunFolder(self._folder), self._job, content, best_model)
        except NotSavedElsewhere as error:
            self._warn("not_saved_elsewhere", f"{state_text} not saved there. {error} Choose another folder.")
            return None
        self._warn("saved_elsewhere", f"{state_text} saved to {copy.path}.")
        return copy

    def _find_first_nonfinite(self, kind: Kind, content: Any) -> str:
        """Return the name of a tensor in a checkpoint with NaN or infinite numbers, or "" if there is none.

        `content` is the content of last.pt or best.pt (`kind`). Buffers in `expected_nonfinite` don't count.
        """
        state = content if kind == "best" else {name: content[name] for name in ("model", "optimizer")}
        return find_first_nonfinite(state, self._expected_nonfinite)

    def _warn(self, code: str, message: str) -> None:
        """Send a warning for the user to the supervisor. `code` identifies the kind of warning."""
        self._send(Warned(code=code, message=message, rank=0))
