"""Whether the search on screen can be made, found away from the window's thread, since the disk may be slow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from engine.checks import job_checks
from engine.checks.search_checks import name_problems, room_problems, validate_search
from engine.contract.catalogue import load_catalogue
from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from engine.contract.problems import Problem, errors
from engine.contract.search import Search
from engine.runs.searches import searches_folder


@dataclass(frozen=True)
class Request:
    """What is on screen: plain values as they stand in a SPACE.toml, and the job that all trials have in common.
    `taken` are names that the search can't have; None where it is one that there is, which goes on.
    """

    values: Mapping[str, Any]
    job: Job
    report: DatasetReport | None
    taken: Collection[str] | None

    def judge(self) -> tuple[Search | None, list[Problem]]:
        """The search, None where anything is wrong with it, and all problems."""
        catalogue, found = load_catalogue(), []
        if self.taken is not None:
            devices = tuple(self.values["devices"])[: self.values["devices_per_trial"]]
            shared = self.job.with_fields(devices=devices)
            found += errors(job_checks.problems(shared, catalogue, None, self.report))
            if self.values["name"] in self.taken:
                found.append(Problem("name", "There is a search of this name.", "Choose another name."))
        search, wrong = validate_search(self.values, self.job, catalogue, report=self.report)
        found += [problem for problem in wrong if problem not in found]
        if search is not None:
            found += name_problems(search) if self.taken is None else []
            found += room_problems(search, catalogue, searches_folder())
        return (search if not errors(found) else None), found
