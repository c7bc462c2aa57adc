"""Default models: the best one of a task whose pretrained weights can be had."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlparse

from engine.checks.disk import Disk
from engine.contract.catalogue import Catalogue, DefaultModel, TaskEntry, weights_of
from engine.contract.job import TIMM, Job
from engine.contract.weights import TIMM_ENCODER, Weights, is_available, why_unavailable


class ModelChoice(NamedTuple):
    """Default model of a task; `reason` names it and why it was chosen: "ResNet-50, whose weights are on this machine"."""

    model: str
    encoder: str
    reason: str


def choose_model(task: TaskEntry, catalogue: Catalogue, disk: Disk, *, uses_gpu: bool) -> ModelChoice:
    """Return the first default of `task` that suits the device and whose weights can be had, or else the last one.

    A server that hasn't answered yet counts as unreachable. Servers of later defaults aren't asked. The model is "" if
    the task has no defaults.
    """
    why = "the task's default"
    for default in task.defaults:
        weights = weights_of(_job(task, default), catalogue)
        if default is task.defaults[-1]:
            return _choice(default, weights, why, catalogue)
        if default.gpu and not uses_gpu:
            why = "because training runs on the CPU"
        elif weights is None or (available := is_available(weights, disk)):
            return _choice(default, weights, _origin(weights, disk), catalogue)
        elif available is None:
            why = f"because {urlparse(weights.host).netloc} hasn't answered yet"
        else:
            why = f"because {why_unavailable(weights)}"
    return ModelChoice("", "", "")


def included_alternative(job: Job, catalogue: Catalogue) -> DefaultModel | None:
    """Return the task's default whose weights come with the installation; None if the job uses these weights already."""
    task = catalogue.task(job.task)
    if task is None:
        return None
    for default in task.defaults:
        weights = weights_of(_job(task, default), catalogue)
        if weights is not None and weights.is_included:
            return None if weights == weights_of(job, catalogue) else default
    return None


def default_title(default: DefaultModel, catalogue: Catalogue) -> str:
    """Return "ResNet-50", or "U-Net on EfficientNet-Lite0"."""
    if not default.encoder:
        return _title(default.model, catalogue)
    of_timm = default.encoder.startswith(TIMM_ENCODER)
    encoder = TIMM + default.encoder.removeprefix(TIMM_ENCODER) if of_timm else default.encoder
    return f"{_title(default.model, catalogue)} on {_title(encoder, catalogue)}"


def _choice(default: DefaultModel, weights: Weights | None, why: str, catalogue: Catalogue) -> ModelChoice:
    included = " (included weights)" if weights is not None and weights.is_included else ""
    return ModelChoice(default.model, default.encoder, f"{default_title(default, catalogue)}{included}, {why}")


def _origin(weights: Weights | None, disk: Disk) -> str:
    """Return where available weights come from, as a relative clause."""
    if weights is None:
        return "which starts from random weights"
    here = disk.weights(weights)
    if here is not None and here.path:
        return "whose weights are on this machine"
    return f"whose weights can be downloaded from {urlparse(weights.host).netloc}"


def _job(task: TaskEntry, default: DefaultModel) -> Job:
    return Job.from_fields(task=task.id, model=default.model, encoder=default.encoder)


def _title(model: str, catalogue: Catalogue) -> str:
    entry = catalogue.model(model)
    return entry.title if entry is not None else model
