"""What a job leaves open, decided once, before its strategy lays the model out."""

from __future__ import annotations

from torch import nn

from engine.contract.job import Job
from engine.strategies.base import ResolvedJob
from engine.training.autotune import Autotuner
from engine.training.checkpointing.resume import Checkpoint


def resolve(
    job: Job, trials: Autotuner, model: nn.Module, checkpoint: Checkpoint | None, *, alone: bool
) -> ResolvedJob:
    """Decides what `job` leaves open for the plain `model`, in training mode: as in the run of the `checkpoint` that
    it goes on from, where it computes alike, else by `trials`. All ranks call it together; `alone` says that there is
    one.
    """
    if checkpoint is None:
        return ResolvedJob(trials.decide(job, model, {}))
    job, evaluation_parts = checkpoint.divided(alone=alone)
    job = trials.decide(job, model, checkpoint.job)
    return ResolvedJob(job, checkpoint.shares, checkpoint.cut(job), evaluation_parts)
