"""Default models: the best one of a task whose pretrained weights can be had."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlparse

from engine.checks.disk import Disk
from engine.contract.catalogue import Catalogue, DefaultModel, TaskEntry, weights_of
from engine.contract.job import TIMM, Job
from engine.contract.weights import TIMM_ENCODER, Weights, is_available, why_unavailable


class ModelChoice(NamedTuple):
    """A default model of a task; `reason` is a sentence for the user that names it and says why it was chosen."""

    model: str
    encoder: str
    reason: str


def choose_model(task: TaskEntry, catalogue: Catalogue, disk: Disk, *, uses_gpu: bool) -> ModelChoice:
    """Return the best default model of `task` whose weights are on this machine or can be downloaded.

    A server that hasn't answered yet counts as unreachable, and none is asked about weights that aren't needed.
    Without defaults, the model is "".
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
    """Return the default of the job's task whose weights come with the installation, unless the job uses it already."""
    task = catalogue.task(job.task)
    if task is None:
        return None
    for default in task.defaults:
        weights = weights_of(_job(task, default), catalogue)
        if weights is not None and weights.is_included:
            return None if weights == weights_of(job, catalogue) else default
    return None


def pretrained_available(job: Job, catalogue: Catalogue, disk: Disk) -> bool | None:
    """Return True if the job's pretrained weights can be had; None as long as `disk` doesn't know."""
    weights = weights_of(job, catalogue)
    return False if weights is None else is_available(weights, disk)


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
    return Job(task=task.id, model=default.model, encoder=default.encoder)


def _title(model: str, catalogue: Catalogue) -> str:
    entry = catalogue.model(model)
    return entry.title if entry is not None else model
