"""What is to be said of the pretrained weights that a job starts from: whether they can be had, and on what terms."""

from __future__ import annotations

from typing import Literal

from engine.checks.disk import Disk
from engine.contract.catalogue import Catalogue, weights_of
from engine.contract.job import TIMM, Job
from engine.contract.problems import Problem
from engine.contract.weights import OnDisk, Weights, offline, ways_out

BYTES_PER_PARAMETER = 4
"""Of float32, which timm keeps its weights in."""


def weights_problems(job: Job, catalogue: Catalogue, disk: Disk) -> list[Problem]:
    """What stands in the way of a job that is to start from pretrained weights, and what the user should know of "
    "them."""
    if not job.pretrained or job.weights_file or job.resume_from or not _model_exists(job, catalogue):
        return []
    weights = weights_of(job, catalogue)
    if weights is None:
        message = f"There are no known pretrained weights for {_title(job, catalogue)}."
        return [Problem("pretrained", message, "Give a weights file, or train from scratch.")]
    found = []
    if weights.non_commercial:
        message = f"The weights {weights.title} are licensed for non-commercial use only ({weights.licence_title})."
        remedy = "For commercial use, choose other weights or train from scratch."
        found.append(Problem("pretrained", message, remedy, "warning"))
    here = disk.weights(weights)
    if here is None or here.path:
        return found
    if offline():
        found.append(_out_of_reach(weights, "HF_HUB_OFFLINE forbids downloading them", "error"))
    elif disk.reaches(weights.host) is False:
        found.append(_out_of_reach(weights, f"{weights.host} can't be reached", "warning"))
    return found


def weights_line(job: Job, catalogue: Catalogue, disk: Disk) -> str:
    """ "Weights: timm/resnet50.a1_in1k, Apache-2.0, 97.8 MiB, on this machine"; "" for a model that is a file of "
    "the user's."""
    if job.model_is_file or not _model_exists(job, catalogue):
        return ""
    weights = weights_of(job, catalogue)
    if weights is None:
        return "Weights: none are known for this model"
    here = disk.weights(weights)
    parts = [f"Weights: {weights.title}", weights.licence_title, _size(job, weights, here, catalogue)]
    if here is not None:
        parts.append("on this machine" if here.path else _elsewhere(job, weights, disk))
    return ", ".join(filter(None, parts))


def _elsewhere(job: Job, weights: Weights, disk: Disk) -> str:
    """What becomes of weights that are not on this machine. For a job that does not want them nobody is asked."""
    if not job.pretrained or job.weights_file:
        return "not on this machine"
    return "unreachable" if offline() or disk.reaches(weights.host) is False else "will be downloaded"


def _out_of_reach(weights: Weights, why: str, severity: Literal["error", "warning"]) -> Problem:
    message = f"The pretrained weights {weights.title} are not on this machine, and {why}."
    return Problem("pretrained", message, ways_out(weights), severity)


def _size(job: Job, weights: Weights, here: OnDisk | None, catalogue: Catalogue) -> str:
    if here is not None and here.path:
        return _mebibytes(here.bytes)
    model = catalogue.model(job.model)
    if weights.bytes or model is None or model.encoder:
        return _mebibytes(weights.bytes) if weights.bytes else ""
    return f"about {_mebibytes(BYTES_PER_PARAMETER * model.parameters)}"


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _model_exists(job: Job, catalogue: Catalogue) -> bool:
    """Whether it is known what the job's model is: of a name that nobody knows other checks tell."""
    if job.model_is_file or job.model.startswith(TIMM):
        return True
    task = catalogue.task(job.task)
    return catalogue.model(job.model) is not None and not (task is not None and task.file)


def _title(job: Job, catalogue: Catalogue) -> str:
    if job.model_is_file:
        return "a model file"
    model = catalogue.model(job.model)
    if model is None:
        return job.model
    return f"the encoder {job.encoder}" if model.encoder else model.title
