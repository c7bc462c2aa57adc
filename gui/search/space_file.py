"""A SPACE.toml, as the window and ``footplate search`` read and write it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from engine.contract.job import Job, changed_fields, job_from_values, job_table, load_job, read_toml, values_from_table
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
        job_values, wrong = values_from_table(told)
        dataset = job_values.get("dataset")
        if isinstance(dataset, str) and dataset:
            job_values["dataset"] = str(path.parent.absolute() / Path(dataset).expanduser())
        job, invalid = job_from_values(job_values)
        wrong += invalid
    elif isinstance(told, str):
        job, wrong = load_job(path.parent / Path(told).expanduser())
    elif told is not None:
        wrong = [Problem("job", "The job is neither a table nor a path.", 'Write [job], or job = "job.toml".')]
    return values, job, wrong


def write_space(path: Path, values: Mapping[str, Any], job: Job) -> None:
    """Writes a SPACE.toml with its job, whole or not at all. Raises OSError."""
    names = [name for name in changed_fields(job) if name != "devices"]
    paths.write_atomically(path, tomli_w.dumps({**values, "job": job_table(job, names)}).encode())
