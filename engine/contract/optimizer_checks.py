"""Whether a job's optimizer and schedule go together, and with its strategy."""

from __future__ import annotations

from engine.contract.catalogue import StrategyEntry
from engine.contract.job import Job
from engine.contract.problems import Problem


def optimizer_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """What stands against the job's optimizer and schedule."""
    found = []
    if job.nesterov and not (job.optimizer == "sgd" and job.momentum):
        found.append(
            Problem(
                "nesterov",
                "Nesterov momentum is a form of SGD's momentum.",
                "Choose SGD with a momentum above 0, or switch it off.",
                "error" if job.optimizer == "sgd" else "warning",
            )
        )
    if job.optimizer == "lamb" and strategy.shards:
        found.append(
            Problem(
                "optimizer",
                f"LAMB needs the norm of whole parameters, of which {strategy.title} gives each device a shard.",
                "Choose AdamW, or DistributedDataParallel.",
            )
        )
    if any(epoch < 1 for epoch in job.milestones):
        found.append(
            Problem("milestones", "Epochs are counted from 1.", "Give whole numbers above 0, or leave it empty.")
        )
    elif job.milestones and job.schedule != "step":
        found.append(_idle("milestones", "Only StepLR steps down.", "Choose StepLR, or leave it empty."))
    warms_up = job.warmup_epochs or job.warmup_steps
    if warms_up and job.schedule == "onecycle":
        field = "warmup_epochs" if job.warmup_epochs else "warmup_steps"
        found.append(_idle(field, "OneCycle warms up by itself.", "Set it to 0, or choose another schedule."))
    elif job.warmup_epochs >= job.epochs:
        message = f"The run ends after {job.epochs} epochs, before the learning rate has risen."
        found.append(_idle("warmup_epochs", message, "Set fewer."))
    return found


def _idle(field: str, message: str, remedy: str) -> Problem:
    return Problem(field, message, remedy, "warning")
