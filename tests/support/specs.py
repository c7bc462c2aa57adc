"""Worker specifications for tests without a run folder."""

from __future__ import annotations

from typing import Any

from engine.contract.job import Job
from engine.contract.worker import WorkerSpec


def make_worker_spec(job: Job, **changes: Any) -> WorkerSpec:
    """Return the specification of the job's first worker, with one thread and no run folder.

    `changes` override its fields.
    """
    devices = job.parallel.devices
    values: dict[str, Any] = {"rank": 0, "world_size": len(devices), "devices": devices, "threads": 1}
    return WorkerSpec(**{"run_folder": "", "job": job, "rendezvous": ""} | values | changes)
