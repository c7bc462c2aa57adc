"""Paths to open: the argument of `footplate`, or files dropped on the window."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.contract.job import load_job
from gui.sources.prefill import Prefill


@dataclass(frozen=True)
class Opened:
    """Dataset folder or job to open, else a `problem`."""

    folder: str = ""
    prefill: Prefill | None = None
    problem: str = ""


def read_paths(paths: Sequence[str]) -> Opened:
    """Read the first folder or job file (`*.toml`) among `paths`; may block on the disk."""
    folder_or_job = (path for path in paths if os.path.isdir(path) or path.endswith(".toml"))
    path = next(folder_or_job, "")
    if not path:
        names = " and ".join(filter(None, (os.path.basename(path) for path in paths[:2])))
        return Opened(problem=f"{names} can't be opened: choose a dataset folder or a job file (*.toml).")
    return Opened(folder=path) if os.path.isdir(path) else _read_job(Path(path))


def _read_job(path: Path) -> Opened:
    job, problems = load_job(path)
    if job is None:
        return Opened(problem=f"The job in {path} can't be used. {' '.join(map(str, problems))}")
    # The file may come from somebody else, and only the user may allow a model's code to run.
    job = job.with_fields(model_file_sha256="")
    return Opened(prefill=Prefill(text=f"A new run with the job in {path}.", job=job))
