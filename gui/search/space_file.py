"""A SPACE.toml, as the window and ``footplate search`` read and write it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from engine.contract.job import Job, changed_fields, job_from_values, load_job, read_toml
from engine.contract.problems import Problem
from engine.system import paths


def read_space(path: Path) -> tuple[dict[str, Any], Job | None, list[Problem]]:
    """The values that stand in a SPACE.toml, the job if it names one, and what is wrong with it. To be called away
    from the window's thread.
    """
    values, problem = read_toml(path, "space")
    if problem is not None:
        return {}, None, [problem]
    values.setdefault("name", path.stem)
    told = values.pop("job", None)
    job: Job | None = None
    wrong: list[Problem] = []
    if isinstance(told, dict):
        if isinstance(told.get("dataset"), str) and told["dataset"]:
            told["dataset"] = str(path.parent.absolute() / Path(told["dataset"]).expanduser())
        job, wrong = job_from_values(told)
    elif isinstance(told, str):
        job, wrong = load_job(path.parent / Path(told).expanduser())
    elif told is not None:
        wrong = [Problem("job", "The job is neither a table nor a path.", 'Write [job], or job = "job.toml".')]
    return values, job, wrong


def write_space(path: Path, values: Mapping[str, Any], job: Job) -> None:
    """Writes a SPACE.toml with its job, whole or not at all. Raises OSError."""
    told = msgspec.to_builtins(changed_fields(job) | ({"options": dict(job.options)} if job.options else {}))
    job_values = {name: value for name, value in told.items() if value is not None and name != "devices"}
    paths.write_atomically(path, tomli_w.dumps({**values, "job": job_values}).encode())
