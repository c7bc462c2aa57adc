"""Saving the final state of a run in another folder if the disk with the run folder refuses it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from engine.contract.job import Job, save_job
from engine.runs.folder import RunFolder
from engine.training.checkpointing.checkpoint_files import CheckpointError, copy_checkpoint, sync, write_checkpoint


class NotSavedElsewhere(Exception):  # noqa: N818 - describes the outcome
    """Raised when a state could not be saved in another folder.

    The folder is unchanged. The message gives the reason.
    """


def save_elsewhere(
    folder: Path, run: RunFolder, job: Job, last: Mapping[str, Any] | None, best: Mapping[str, Tensor] | None
) -> RunFolder:
    """Create a copy of the run folder in `folder` with the job, last.pt and best.pt, and flush it to the disk.

    `last` and `best` are the contents of the checkpoints. If one is None, the run's file is copied if it is readable.
    Existing files are never overwritten, so that it is safe to save in folders where other users can write. Raises
    NotSavedElsewhere.
    """
    copy = RunFolder(folder / run.run_id)
    _check_folder(folder, copy, state_bytes(last) + state_bytes(best))
    try:
        copy.path.mkdir(mode=0o700)
    except OSError as error:
        raise NotSavedElsewhere(f"{copy.path} can't be created: {error.strerror}.") from error
    try:
        save_job(run.job() or job, copy.job_file)
        checksum_entry = _write_or_copy("best.pt", best, run, copy)
        _write_or_copy("last.pt", {**last, **checksum_entry} if last is not None else None, run, copy)
        for path in (copy.job_file, copy.path, folder):
            sync(path)
    except (OSError, CheckpointError) as error:
        shutil.rmtree(copy.path, ignore_errors=True)
        why = error.why if isinstance(error, CheckpointError) else f"{folder} is not writable: {error.strerror}."
        raise NotSavedElsewhere(why) from error
    return copy


def explain_how_to_resume(run: RunFolder, copy: RunFolder, *, finished: bool) -> str:
    """Return instructions for using the state that was saved in `copy`.

    A run that is `finished` can't be trained further.
    """
    back = f"Once there is room, copy the contents of {copy.path} to {run.path} and resume the run"
    if finished:
        return f"{back}."
    words = ["footplate", "train", "--job", str(copy.job_file), "--resume-from", str(copy.checkpoints / "last.pt")]
    return f"{back}, or continue in a new run: `{shlex.join(words)}`."


def state_bytes(state: Any) -> int:
    """Return the total size in bytes of all tensors in nested dicts and lists."""
    if isinstance(state, Tensor):
        return state.nbytes
    if isinstance(state, Mapping):
        return sum(map(state_bytes, state.values()))
    return sum(map(state_bytes, state)) if isinstance(state, list | tuple) else 0


def _write_or_copy(name: str, content: Any, run: RunFolder, copy: RunFolder) -> dict[str, str]:
    """Write the checkpoint `name` with `content` to `copy`. If `content` is None, copy the file of `run`.

    Returns {"best_sha256": …} with the checksum of the written file, or {} if it was copied.
    """
    if content is not None:
        return {"best_sha256": write_checkpoint(content, copy.checkpoints / name).sha256}
    with suppress(OSError):
        copy_checkpoint(run.checkpoints / name, copy.checkpoints / name)
    return {}


def _check_folder(folder: Path, copy: RunFolder, needed: int) -> None:
    """Raise NotSavedElsewhere unless `folder` is writable, does not contain `copy`, and has `needed` free bytes."""
    try:
        if not folder.is_absolute() or not folder.exists():
            raise NotSavedElsewhere(f"The folder {folder} does not exist.")
        if not folder.is_dir():
            raise NotSavedElsewhere(f"{folder} is not a folder.")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise NotSavedElsewhere(f"{folder} is not writable.")
        if os.path.lexists(copy.path):
            raise NotSavedElsewhere(f"{folder} already contains {copy.run_id}, which is not overwritten.")
        free = shutil.disk_usage(folder).free
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise NotSavedElsewhere(f"{folder} can't be read: {why}.") from error
    if free < needed:
        sizes = f"{free / 2**20:,.1f} MiB free, and the state needs {needed / 2**20:,.1f} MiB"
        raise NotSavedElsewhere(f"The disk of {folder} has {sizes}.")
