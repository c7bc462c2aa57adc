"""Small searches over the settings of short runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.checks.search_checks import validate_search
from engine.contract.catalogue import load_catalogue
from engine.contract.job import Job
from engine.contract.search import Search
from engine.system import paths

SPACE: dict[str, Any] = {
    "learning_rate": {"low": 1e-4, "high": 1.0, "log": True},
    "optimizer": ["sgd", "adamw"],
    "milestones": [[1], [1, 2]],
}


def make_small_job(dataset: Path | None = None, **changes: Any) -> Job:
    """Make a job that trains on `dataset`, by default the sample dataset, within a second.

    `changes` override its other fields.
    """
    fields = {"model": "mnist_cnn", "image_size": 16, "batch_size": 16, "epochs": 3, "predictions": 0} | changes
    return Job.from_fields(dataset=str(dataset or paths.sample_dataset()), **fields)


def make_small_search(job: Job | None = None, **values: Any) -> Search:
    """Make a valid search over the settings of `job`, without confirmation runs. `values` override its fields."""
    given = {"name": "small", "space": SPACE, "trials": 4, "devices": ["cpu", "cpu"], "confirm": 0} | values
    search, problems = validate_search(given, job or make_small_job(), load_catalogue())
    assert search is not None, problems
    return search
