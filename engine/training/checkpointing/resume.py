"""Resuming from a checkpoint of another run, under any strategy.

On the same devices, the results are bit-identical to those of an uninterrupted run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from torch import Tensor

from engine.contract.events import Warned
from engine.contract.job import FIELDS, Job, fields_with_trait
from engine.contract.model_split import ModelSplit
from engine.models.base import TaskError
from engine.optim.optimizer_step import OptimizerStep
from engine.runs.folder import older_checkpoints
from engine.strategies.base import Strategy, resolve_precision
from engine.strategies.collectives import Collectives
from engine.system.format import counted
from engine.training.autotune import can_reuse_choices
from engine.training.checkpointing.checkpoint_files import (
    DamagedCheckpoint,
    copy_checkpoint,
    read_checkpoint,
    verify_checkpoint,
)
from engine.training.checkpointing.checkpoint_writer import TrainProgress
from engine.training.checkpointing.checkpointer import Checkpointer
from engine.training.randomness import set_random_state

_FIELD = "resume_from"
_KEYS = {
    "model", "optimizer", "random", "epoch", "done", "steps", "step", "validated", "shares", "classes", "best",
    "best_epoch", "best_sha256", "job", "parts", "model_split", "stopping",
}  # fmt: skip


class Checkpoint:
    """Checkpoint from which a run resumes: last.pt, or the newest intact checkpoint before it if last.pt is damaged.

    `plain` is the initial state of the job's plain model, and `classes` are the classes of the dataset. `path` is the
    file that was read. All ranks read it together. Raises TaskError if the file is not a checkpoint, or if its model,
    classes or optimizer are not those of the job.
    """

    def __init__(
        self,
        job: Job,
        classes: Sequence[str],
        plain: dict[str, Tensor],
        collectives: Collectives,
    ) -> None:
        """Read the checkpoint that `job` names and validate it. All ranks call it together. Raises TaskError."""
        # The file that the job names. `path` is the one that was read.
        self._requested = Path(job.checkpoints.resume_from).expanduser()
        self._job = job
        self._memory_warnings: list[Warned] = []
        self.path, self._content, digest = _read_intact(self._requested)
        # All ranks have read the same file if the largest and the smallest number are equal.
        number = int(digest[:15], 16)  # fits in an int64
        largest, negated_smallest = collectives.all_reduce_max([number, -number])
        if largest != -negated_smallest:
            message = f"{self._requested} was overwritten while the ranks were reading it."
            raise TaskError(_FIELD, message, "Wait until that run has ended, or choose an older checkpoint of it.")
        self._validate(classes, plain)

    @property
    def job(self) -> dict[str, Any]:
        """Fields of the resumed run's job, including its automatic choices."""
        fields: dict[str, Any] = self._content["job"]
        return fields

    def progress(self, steps: int) -> TrainProgress:
        """Return the position at which the job continues the run, with `steps` steps per epoch.

        After a validated epoch, this is the next epoch. If only the validation is missing, it is the end of the epoch's
        steps. The seed determines the order of samples in each epoch. An interrupted epoch starts over if this order
        differs from that in the resumed run.
        """
        content = self._content
        epoch, done = content["epoch"], content["done"]
        if done == content["steps"] and content["validated"]:
            epoch, done = epoch + 1, 0
        elif done == content["steps"]:
            done = steps  # only the validation of the epoch is left
        elif not self._has_same_order(steps):
            done = 0
        return TrainProgress(epoch=epoch, done=done, steps=steps, step=(epoch - 1) * steps + done)

    def _has_same_order(self, steps: int) -> bool:
        """Return True if the job, with `steps` steps per epoch, orders the samples as the resumed run did."""
        is_equal = all(
            self.job.get(name, FIELDS[name].default) == self._job.value(name) for name in fields_with_trait("order")
        )
        return is_equal and self._content["steps"] == steps

    def remarks(self, steps: int) -> list[Warned]:
        """Return messages to the user about a damaged checkpoint and the position at which the job resumes.

        `steps` is the number of steps per epoch. After `restore_accumulation`, a message about memory is included.
        """
        content, progress = self._content, self.progress(steps)
        remarks = list(self._memory_warnings)
        if self.path != self._requested:
            message = (
                f"{self._requested} is damaged. Resuming from the previous checkpoint, {self.path.name}, after "
                f"step {content['step']:,}."
            )
            remarks.append(Warned(code="checkpoint_damaged", message=message))
        if progress.epoch > self._job.training.epochs:
            message = (
                f"{self.path} has been trained for {counted(progress.epoch - 1, 'epoch')}, and the job asks for "
                f"{self._job.training.epochs}: there is nothing left to train. Set more epochs to continue."
            )
            remarks.append(Warned(code="nothing_left", message=message))
        elif progress.epoch == content["epoch"] and progress.done == 0 and content["done"] > 0:  # see `progress`
            message = (
                f"Epoch {progress.epoch} starts over: {self.path} was saved in the middle of it by a run with "
                "a different seed, batch size or selection of images, and so a different order of images."
            )
            remarks.append(Warned(code="epoch_anew", message=message))
        return remarks

    def restore_accumulation(self, *, is_alone: bool) -> tuple[Job, int]:
        """Return the job with the accumulation to use, and the number of parts per evaluation batch.

        If the resumed run ran out of memory, it divided its batches into more parts than its job requested. A single
        worker (`is_alone`) uses the same accumulation and the same number of parts if the job needs as much memory.
        """
        job, before, parts = self._job, self.job, self._content["parts"]
        if not is_alone or not _needs_same_memory(before, job):
            return job, 1
        requested = parts["asked"]  # accumulation in the job of the resumed run
        was_raised = before["accumulation"] != requested  # because memory ran out
        if was_raised and job.training.accumulation == requested:
            job = job.with_fields(accumulation=before["accumulation"])
            message = (
                f"Each batch is processed in {before['accumulation']} parts, as in the resumed run after it "
                "had run out of memory."
            )
            self._memory_warnings = [Warned(code="out_of_memory", message=message)]
        return job, parts["evaluation"]

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Fraction of each global batch that each data-parallel rank had in the resumed run.

        None if the batch isn't divided by the speed of the devices in both runs, if their devices or strategies differ,
        or if the run was stopped while it measured the fractions.
        """
        job, before, shares = self._job, self.job, self._content["shares"]
        is_alike = tuple(before["devices"]) == job.parallel.devices and before["strategy"] == job.resolved_strategy
        is_by_speed = before["balance"] == job.parallel.balance == "speed"
        return tuple(shares) if is_alike and is_by_speed and shares is not None else None

    def model_split(self, job: Job) -> ModelSplit | None:
        """Return the resumed run's split into pipeline stages, or None if it can't be reused.

        It can be reused if `job`, after automatic choices, has the same devices, settings and split points.
        """
        if self._content["model_split"] is None or not can_reuse_choices(self.job, job):
            return None
        split = msgspec.convert(self._content["model_split"], ModelSplit)
        has_same_points = split.split_points == job.parallel.split_points
        return split if has_same_points and split.recomputed == job.parallel.activation_checkpointing else None

    def restore(
        self, strategy: Strategy, optimizer_step: OptimizerStep, checkpointer: Checkpointer, progress: TrainProgress
    ) -> None:
        """Load the checkpoint into the strategy, the optimizer and the checkpointer, to continue at `progress`.

        The best epoch is restored if the best.pt next to the checkpoint is intact and not newer than the checkpoint. If
        strategy, seed and number of devices are the same, the random states of every rank are restored, too. All ranks
        call it together, once.
        """
        content, last = self._content, checkpointer.writer.path("last")
        if last.exists() and self.path.samefile(last):  # the run continues in its own folder
            position = (content[name] for name in ("epoch", "done", "steps", "step"))
            checkpointer.writer.newest = TrainProgress(*position)
        copied = strategy.spec.rank == 0 and self._copy_best(checkpointer.writer.path("best"))
        if strategy.collectives.all_reduce_max([int(copied)])[0]:
            checkpointer.best, checkpointer.best_epoch = content["best"], content["best_epoch"]
            checkpointer.writer.best_sha256 = content["best_sha256"]
        checkpointer.stopping.load_state_dict(content["stopping"])
        if progress.epoch <= self._job.training.epochs:
            strategy.load_state_dict(self._content.pop("model"))
            # The position in the schedule depends on this job, which may have other epochs or batches.
            optimizer_step.load_state_dict(self._content.pop("optimizer") | {"schedule": None})
            optimizer_step.set_schedule_step(progress.step)
        job, before = self._job, self.job
        is_alike = all(before[name] == job.value(name) for name in ("strategy", "seed"))
        if is_alike and len(before["devices"]) == len(job.parallel.devices):
            set_random_state(content["random"][strategy.spec.rank], strategy.gpus)

    def _copy_best(self, target: Path) -> bool:
        """Copy the best.pt next to the checkpoint to `target`. Returns False if there is no intact one."""
        source = self.path.with_name("best.pt")
        if self._content["best_epoch"] is None:
            return False
        try:
            if verify_checkpoint(source) != self._content["best_sha256"]:
                return False
            if not (target.exists() and source.samefile(target)):
                copy_checkpoint(source, target)
        except (OSError, DamagedCheckpoint):
            return False
        return True

    def _validate(self, classes: Sequence[str], plain: dict[str, Tensor]) -> None:
        """Raise TaskError unless classes, model and optimizer of the checkpoint are those of the job.

        `plain` is the state of the job's model.
        """
        before: dict[str, Any] = self._content["job"]
        if tuple(self._content["classes"]) != tuple(classes):
            message = f"{self.path} was trained on {_describe_classes(self._content['classes'])}; the dataset has {_describe_classes(classes)}."
            raise TaskError(_FIELD, message, "Choose that run's dataset, or clear “Continue from”.")
        state = self._content["model"]
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        if shapes != {name: tuple(tensor.shape) for name, tensor in plain.items()}:
            model = before.get("model")
            other = f"a run of {model}" if model != self._job.model.name else f"a different variant of {model}"
            message = f"{self.path} comes from {other}, whose weights don't fit this job's {self._job.model.name}."
            raise TaskError(_FIELD, message, "Choose that run's model and image size, or clear “Continue from”.")
        if before.get("optimizer") != self._job.optimizer.name:
            message = f"{self.path} contains the state of another optimizer, {before.get('optimizer')}."
            raise TaskError(_FIELD, message, f"Choose {before.get('optimizer')}, or clear “Continue from”.")


def _needs_same_memory(before: dict[str, Any], job: Job) -> bool:
    """Return True if `job` needs as much memory on each device as the job `before`."""
    is_alike = all(before.get(name, FIELDS[name].default) == job.value(name) for name in fields_with_trait("memory"))
    has_same_devices = tuple(before["devices"]) == job.parallel.devices
    return is_alike and has_same_devices and before["precision"] == resolve_precision(job)


def _read_intact(path: Path) -> tuple[Path, dict[str, Any], str]:
    """Read the checkpoint at `path`, and return the path that was read, its content and its SHA-256.

    If `path` is a damaged last.pt, the newest intact checkpoint before it is read instead.
    """
    try:
        return path, *_read_content(path)
    except FileNotFoundError:
        raise TaskError(_FIELD, f"There is no file {path}.", "Check the spelling, or browse for it.") from None
    except (DamagedCheckpoint, OSError) as error:
        older_files = [*older_checkpoints(path.parent).values()][::-1] if path.name == "last.pt" else []
        for older in older_files:
            try:
                return older, *_read_content(older)
            except (DamagedCheckpoint, OSError):
                continue
        if older_files:
            names = ", ".join(file.name for file in older_files)
            message = f"{path} is damaged, and so are the checkpoints before it ({names})."
            remedy = "Train from the start; if its best.pt is intact, it can serve as the weights file."
        elif isinstance(error, OSError):
            message, remedy = f"{path} can't be read: {error.strerror}.", "Check the path."
        else:
            message, remedy = f"{path} is not a checkpoint, or is damaged: {error}.", "Choose a run's last.pt."
        raise TaskError(_FIELD, message, remedy) from error


def _read_content(path: Path) -> tuple[dict[str, Any], str]:
    """Read a checkpoint, and return its content and its SHA-256. Raises OSError, DamagedCheckpoint and TaskError.

    TaskError means that the file is intact, but doesn't have the content of a checkpoint.
    """
    content, digest = read_checkpoint(path)
    if isinstance(content, dict) and content.keys() >= _KEYS:
        return content, digest
    if isinstance(content, dict) and content and all(isinstance(value, Tensor) for value in content.values()):
        message = f"{path} contains only weights, without the state of a training."
        raise TaskError(_FIELD, message, "Choose a run's last.pt, or use this file as the weights file.")
    raise TaskError(_FIELD, f"{path} is not a Footplate checkpoint.", "Choose a run's last.pt.")


def _describe_classes(classes: Sequence[str]) -> str:
    """Return the number of classes and the names of the first ones, as in "9 classes (a, b, c, …)"."""
    named = ", ".join(classes[:3]) + (", …" if len(classes) > 3 else "")
    return f"{counted(len(classes), 'class')} ({named})"
