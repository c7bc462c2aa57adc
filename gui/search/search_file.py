"""Reading, writing and validating a search in the form of a SPACE.toml.

All functions except `make_values` use the disk, so call them on a worker thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from engine.checks import job_checks
from engine.checks.search_checks import name_problems, room_problems, validate_search
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.job import Job, changed_fields, job_from_values, job_table, load_job, read_toml, values_from_table
from engine.contract.problems import Problem, errors
from engine.contract.search import Choices, Search
from engine.runs.searches import searches_folder
from engine.system import paths
from gui.translation import tr


def make_values(search: Search) -> dict[str, Any]:
    """Return the values that represent a search in a SPACE.toml."""
    space: dict[str, Any] = {}
    for name, dimension in search.space.items():
        if isinstance(dimension, Choices):
            space[name] = ["none" if value is None else value for value in dimension.values]
        else:
            space[name] = {"low": dimension.low, "high": dimension.high}
            if dimension.log:
                space[name]["log"] = True
            if dimension.step is not None:
                space[name]["step"] = dimension.step
    budget = search.budget
    values = {
        "name": search.name,
        "goals": [goal.measure for goal in search.goals],
        "trials": budget.trials,
        "hours": budget.hours,
        "total_epochs": budget.epochs,
        "sampler": search.sampler,
        "pruner": search.pruner,
        "confirm": search.confirm,
        "seed": search.seed,
        "devices": list(search.devices),
        "devices_per_trial": search.devices_per_trial,
        "best_epochs": search.best_epochs,
        "keep_checkpoints": search.keep_checkpoints,
        "space": space,
    }
    return {name: value for name, value in values.items() if value is not None}


def read_space(path: Path) -> tuple[dict[str, Any], Job | None, list[Problem]]:
    """Read a SPACE.toml and return its values, its job, and problems.

    The values are empty if the file can't be read. The job is None if the file has none or an invalid one. A relative
    path of the job's dataset refers to the folder of the file.
    """
    values, problem = read_toml(path, "space")
    if problem is not None:
        return {}, None, [problem]
    values.setdefault("name", path.stem)
    job_source = values.pop("job", None)  # a table, or the path of a job.toml
    job: Job | None = None
    problems: list[Problem] = []
    if isinstance(job_source, dict):
        job_values, problems = values_from_table(job_source)
        dataset = job_values.get("dataset")
        if isinstance(dataset, str) and dataset:
            job_values["dataset"] = str(path.parent.absolute() / Path(dataset).expanduser())
        job, invalid = job_from_values(job_values)
        problems += invalid
    elif isinstance(job_source, str):
        job, problems = load_job(path.parent / Path(job_source).expanduser())
    elif job_source is not None:
        problems = [
            Problem("job", tr("The job is neither a table nor a path."), tr('Write [job], or job = "job.toml".'))
        ]
    return values, job, problems


def write_space(path: Path, values: Mapping[str, Any], job: Job) -> None:
    """Write a SPACE.toml with `values`, the entries of the search, and with `job` except for its devices.

    The file is replaced atomically. Raises OSError.
    """
    names = [name for name in changed_fields(job) if name != "devices"]
    paths.write_atomically(path, tomli_w.dumps({**values, "job": job_table(job, names)}).encode())


@dataclass(frozen=True)
class ValidationRequest:
    """Content of the search form, for validation on a worker thread.

    Attributes:
        job: Job that all trials share.
        report: Report on the job's dataset, or None before its inspection.
        taken: Names of other searches, or None to continue an existing search.
    """

    values: Mapping[str, Any]
    job: Job
    report: DatasetReport | None
    taken: Collection[str] | None

    def validate(self) -> tuple[Search | None, list[Problem]]:
        """Return the search (None if there are errors) and all problems."""
        catalogue, problems = load_catalogue(), []
        if self.taken is not None:  # a new search
            devices = tuple(self.values["devices"])[: self.values["devices_per_trial"]]
            trial_job = self.job.with_fields(devices=devices)
            problems += errors(job_checks.problems(trial_job, catalogue, None, self.report))
            if self.values["name"] in self.taken:
                problems.append(Problem("name", tr("There is a search of this name."), tr("Choose another name.")))
        search, found = validate_search(self.values, self.job, catalogue, report=self.report)
        problems += [problem for problem in found if problem not in problems]
        if search is not None:
            problems += name_problems(search) if self.taken is None else []
            problems += room_problems(search, catalogue, searches_folder())
        return (search if not errors(problems) else None), problems
