"""Whether a job's images can begin smaller than they end."""

from __future__ import annotations

from engine.contract.catalogue import ModelEntry, StrategyEntry, TaskEntry
from engine.contract.image_sizes import STEP
from engine.contract.job import Job
from engine.contract.problems import Problem


def image_size_problems(
    job: Job, task: TaskEntry | None, strategy: StrategyEntry | None, model: ModelEntry | None
) -> list[Problem]:
    """What is wrong with `progressive_from`."""
    start = job.data.progressive_from
    if start is None or task is None or "progressive_from" in task.without:
        return []
    found = []
    size = job.data.image_size or (model.image_size if model is not None else None)
    least = max(STEP, model.min_image_size if model is not None else 0)
    if size is not None and start >= size:
        found.append(
            _wrong(
                f"The first images must be smaller than the image size of {size} px; {start} px is not.",
                "Set a smaller size, or leave it empty.",
            )
        )
    elif start < least:
        found.append(_wrong(f"Images of {start} px are too small.", f"Set {least} or more, or leave it empty."))
    if strategy is not None and strategy.schedules:
        message = f"{strategy.title} sends batches through buffers of a fixed size."
        found.append(_wrong(message, "Leave it empty, or choose another strategy."))
    if job.precision.compile == "on":
        message = "A compiled model would be recompiled for every image size."
        found.append(_wrong(message, "Leave it empty, or set Compile the model to auto or off."))
    return found


def _wrong(message: str, remedy: str) -> Problem:
    return Problem("progressive_from", message, remedy)
