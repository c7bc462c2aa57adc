"""Hook that measures the main memory that a worker allocates while it restores a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from engine.contract.worker import WorkerSpec
from engine.training.checkpointing.resume import Checkpoint

MEASURE = "tests.support.restore_memory:measure"
"""Value for `prepare` of a `WorkerGroup` that resumes on CPUs."""


def measure(spec: WorkerSpec) -> None:
    """Make the worker write the sum of all allocations, and the bytes still allocated afterwards, to its run folder."""
    restore = Checkpoint.restore

    def measured(*arguments: object) -> None:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            restore(*arguments)  # type: ignore[arg-type]
        changes = [event.self_cpu_memory_usage for event in profiler.events()]
        result = {"allocated": sum(change for change in changes if change > 0), "kept": sum(changes)}
        path(spec.run_folder, spec.rank).write_text(json.dumps(result))

    Checkpoint.restore = measured  # type: ignore[method-assign, assignment]


def path(folder: str | Path, rank: int) -> Path:
    """Return the file with the result of a rank."""
    return Path(folder) / f"restore-{rank}.json"
