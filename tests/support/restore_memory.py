"""Hook that measures the main memory that a worker allocates while it restores a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from engine.contract.worker import WorkerSpec
from engine.training.checkpointing.resume import Checkpoint

MEASURE = "tests.support.restore_memory:record_allocations"
"""Value for `prepare` of a `WorkerGroup` that resumes on CPUs."""


def record_allocations(spec: WorkerSpec) -> None:
    """Make the worker record the main memory that it allocates while it restores a checkpoint.

    The record is a JSON file in the run folder: "allocated" is the sum of all allocations in bytes, and "kept" the
    number of bytes that are still allocated after restoring.
    """
    restore = Checkpoint.restore

    def measured(*arguments: object) -> None:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            restore(*arguments)  # type: ignore[arg-type]
        changes = [event.self_cpu_memory_usage for event in profiler.events()]
        result = {"allocated": sum(change for change in changes if change > 0), "kept": sum(changes)}
        get_record_path(spec.run_folder, spec.rank).write_text(json.dumps(result))

    Checkpoint.restore = measured  # type: ignore[method-assign, assignment]


def get_record_path(folder: str | Path, rank: int) -> Path:
    """Return the path of the file that `record_allocations` writes for a rank."""
    return Path(folder) / f"restore-{rank}.json"
