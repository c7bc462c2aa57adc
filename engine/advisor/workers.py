"""Groups of workers for trials, which run in temporary folders."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from engine.contract.events import AnyEvent, Failed
from engine.contract.job import Job
from engine.contract.worker import WorkerSpec
from engine.processes import group
from engine.processes.imports import import_all, modules_for
from engine.supervisor.environment import usable_cores
from engine.supervisor.restart_policy import world_size


def import_for(job: Job) -> None:
    """On Linux, import the modules that the workers of `job` need, so that workers forked from here have them already.

    Elsewhere, do nothing, since workers are not forked.
    """
    if sys.platform == "linux":
        import_all(modules_for(world_size(job)))


def run_workers(
    job: Job, function: str, folder: Path, emit: Callable[[AnyEvent], object], *, seconds: float = math.inf
) -> Failed | None:
    """Run `function` (see `WorkerProcess`) on every rank of `job`, with `folder` as the run folder.

    `emit` is called with the workers' events. Returns None if all workers succeed, otherwise the failure. Raises
    TimeoutError after `seconds`.
    """
    count = world_size(job)
    (folder / "rendezvous").unlink(missing_ok=True)
    specs = [
        WorkerSpec(
            run_folder=str(folder),
            job=job,
            rank=rank,
            world_size=count,
            devices=job.parallel.devices,
            rendezvous=str(folder / "rendezvous"),
            threads=max(1, usable_cores() // count),
        )
        for rank in range(count)
    ]
    return group.run_workers(specs, function, emit, seconds=seconds)


class TrialFolder(tempfile.TemporaryDirectory[str]):
    """Context manager with a temporary folder for a trial's workers."""

    def __init__(self) -> None:
        super().__init__(prefix="footplate-trial-", ignore_cleanup_errors=True)
