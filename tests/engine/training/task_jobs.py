"""Small CPU jobs for every task, for tests that train them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.contract.job import Job


def task_job(folder: Path, cpus: int = 1, **fields: Any) -> Job:
    """Return a job that trains for one epoch on the dataset in `folder`, with `cpus` CPU workers.

    `fields` set the task and override other fields.
    """
    values: dict[str, Any] = {
        "dataset": str(folder), "batch_size": 8, "epochs": 1, "optimizer": "adam", "learning_rate": 0.002,
        "loader_workers": 1, "memory_format": "contiguous", "devices": ("cpu",) * cpus,
    }  # fmt: skip
    return Job.from_fields(**(values | fields))
