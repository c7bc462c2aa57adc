"""What a job leaves open, decided once, before its strategy lays the model out."""

from __future__ import annotations

from torch import nn

from engine.strategies.base import ResolvedJob
from engine.training.resume import Checkpoint
from engine.training.trials import Trials


def resolve(trials: Trials, model: nn.Module, checkpoint: Checkpoint | None, *, alone: bool) -> ResolvedJob:
    """Decides what the job of `trials` leaves open for the plain `model`, in training mode: as in the run of `checkpoint`, where
    the job goes on from one and computes alike, else by trials. All ranks call it together; `alone` says that there is one."""
    if checkpoint is None:
        return ResolvedJob(trials.decide(model, {}))
    trials.job, evaluation_parts = checkpoint.divided(alone=alone)
    job = trials.decide(model, checkpoint.job)
    return ResolvedJob(job, checkpoint.shares, checkpoint.cut(job), evaluation_parts)
