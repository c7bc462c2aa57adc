"""Writing checkpoints so that there is always a whole one."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class CheckpointError(Exception):
    """A checkpoint could not be written; the text says why and what to do. The one before it is untouched."""


@dataclass(frozen=True, slots=True)
class Written:
    bytes: int
    seconds: float


def write_checkpoint(content: Any, path: Path) -> Written:
    """Writes `content` with torch.save so that `path` is either as before or whole, even after a power cut.

    Raises CheckpointError.
    """
    begun = time.perf_counter()
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            torch.save(content, stream)
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(_reason(error, path)) from error
    return Written(size, time.perf_counter() - begun)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(error: BaseException, path: Path) -> str:
    """torch.save wraps the system's error, or raises another while it handles it."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.errno):
        cause = cause.__cause__ or cause.__context__
    kept = "Training goes on, and the last good checkpoint is kept."
    if isinstance(cause, OSError):
        if cause.errno in _FULL:
            full = f"the disk (or the quota) of {path.parent} is full"
            return f"{path.name} could not be saved: {full}. {kept} Free some space."
        return f"{path.name} could not be saved in {path.parent}: {cause.strerror}. {kept}"
    return f"{path.name} could not be saved in {path.parent}: {error}. {kept}"
