"""Whether a job's optimizer and schedule go together, and with its strategy."""

from __future__ import annotations

from engine.contract.catalogue import StrategyEntry
from engine.contract.job import Job
from engine.contract.problems import Problem


def optimizer_problems(job: Job, strategy: StrategyEntry) -> list[Problem]:
    """What stands against the job's optimizer and schedule."""
    found = []
    if job.optimizer.nesterov and job.optimizer.name == "sgd" and not job.optimizer.momentum:
        message = "Nesterov momentum is a form of SGD's momentum."
        found.append(Problem("nesterov", message, "Set a momentum above 0, or turn it off."))
    if job.optimizer.name == "lamb" and (strategy.shards or strategy.splits_layers):
        found.append(
            Problem(
                "optimizer",
                f"LAMB needs the norm of whole parameters, but {strategy.title} gives each device only a part of them.",
                "Choose AdamW, or DistributedDataParallel.",
            )
        )
    if any(epoch < 1 for epoch in job.schedule.milestones):
        found.append(
            Problem("milestones", "Epochs are counted from 1.", "Give whole numbers above 0, or leave it empty.")
        )
    if job.schedule.warmup_epochs >= job.training.epochs and job.schedule.name != "onecycle":
        message = "The warm-up does not end within the run."
        found.append(Problem("warmup_epochs", message, "Set fewer.", "warning"))
    return found
