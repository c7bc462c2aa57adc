"""Choice of default models, and checks of pretrained weights: availability, license, and alternatives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import urlparse

from engine.checks.disk import Disk
from engine.contract.catalogue import Catalogue, DefaultModel, TaskEntry, weights_of
from engine.contract.command import flags
from engine.contract.job import TIMM, Job
from engine.contract.problems import Choice, Problem
from engine.contract.recipes import builtin_recipes
from engine.contract.weights import (
    FROM_SCRATCH,
    TIMM_ENCODER,
    Weights,
    WeightsFile,
    explain_unavailability,
    is_available,
    unavailable_remedy,
)
from engine.system.format import size


class ModelChoice(NamedTuple):
    """Choice of a default model for a task.

    `reason` names the model and explains the choice, e.g. "ResNet-50, whose weights are on this machine".
    """

    model: str
    encoder: str
    reason: str


def choose_model(task: TaskEntry, catalogue: Catalogue, disk: Disk, *, uses_gpu: bool) -> ModelChoice:
    """Choose the first default model of `task` that suits the device and whose weights are available.

    If there is none, the last default is chosen, and the reason explains why the default before it can't be used. A
    server that has not answered yet counts as unreachable. No server is contacted for defaults after the chosen one.
    The model is "" if the task has no defaults.
    """
    if not task.defaults:
        return ModelChoice("", "", "")
    *better_ones, last = task.defaults
    why_last = "the task's default"
    for default in better_ones:
        weights = weights_of(_create_default_job(task, default), catalogue)
        if default.gpu and not uses_gpu:
            why_last = "because training runs on the CPU"
            continue
        is_usable = weights is None or is_available(weights, disk)
        if is_usable:
            return _create_model_choice(default, weights, _describe_origin(weights, disk), catalogue)
        assert weights is not None
        if is_usable is None:
            why_last = f"because {urlparse(weights.host).netloc} hasn't answered yet"
        else:
            why_last = f"because {explain_unavailability(weights)}"
    weights = weights_of(_create_default_job(task, last), catalogue)
    return _create_model_choice(last, weights, why_last, catalogue)


def find_included_alternative(job: Job, catalogue: Catalogue) -> DefaultModel | None:
    """Return the task's default model whose weights come with Footplate.

    Returns None if the task has no such model, or if the job already uses its weights.
    """
    task = catalogue.task(job.task)
    if task is None:
        return None
    for default in task.defaults:
        weights = weights_of(_create_default_job(task, default), catalogue)
        if weights is not None and weights.is_included:
            return None if weights == weights_of(job, catalogue) else default
    return None


def format_default_title(default: DefaultModel, catalogue: Catalogue) -> str:
    """Return the title of a default model, e.g. "ResNet-50" or "U-Net on EfficientNet-Lite0"."""
    if not default.encoder:
        return _get_model_title(default.model, catalogue)
    encoder = default.encoder
    if encoder.startswith(TIMM_ENCODER):  # timm's models have another prefix as models for classification
        encoder = TIMM + encoder.removeprefix(TIMM_ENCODER)
    return f"{_get_model_title(default.model, catalogue)} on {_get_model_title(encoder, catalogue)}"


def _create_model_choice(default: DefaultModel, weights: Weights | None, why: str, catalogue: Catalogue) -> ModelChoice:
    """Return the choice of a default model, with a text that names it, its weights and the reason `why`."""
    included = " (included weights)" if weights is not None and weights.is_included else ""
    return ModelChoice(default.model, default.encoder, f"{format_default_title(default, catalogue)}{included}, {why}")


def _describe_origin(weights: Weights | None, disk: Disk) -> str:
    """Return a relative clause that says where available weights come from. `weights` is None if there are none."""
    if weights is None:
        return "which starts from random weights"
    local = disk.weights(weights)
    if local is not None and local.path:
        return "whose weights are on this machine"
    return f"whose weights can be downloaded from {urlparse(weights.host).netloc}"


def _create_default_job(task: TaskEntry, default: DefaultModel) -> Job:
    return Job.from_fields(task=task.id, model=default.model, encoder=default.encoder)


def _get_model_title(model: str, catalogue: Catalogue) -> str:
    entry = catalogue.model(model)
    return entry.title if entry is not None else model


BYTES_PER_PARAMETER = 4
"""Number of bytes per parameter in float32, the usual type of timm's weights."""


def weights_problems(
    job: Job, catalogue: Catalogue, disk: Disk, *, chosen: Collection[str] | None = None
) -> list[Problem]:
    """Return the problems with a job's pretrained weights, which may be unknown, unavailable or non-commercial.

    If the job's `pretrained` is off because the weights are unavailable, a warning is returned, unless the user has
    turned it off or chosen a recipe without pretrained weights. `chosen` contains the fields that the user has set. If
    it is None, they are unknown, and there is no such warning.
    """
    if job.model.weights_file or job.checkpoints.resume_from or not _model_exists(job, catalogue):
        return []
    weights = weights_of(job, catalogue)
    if not job.model.pretrained:
        if weights is not None and chosen is not None and _expects_weights(job, chosen):
            return _missed_weights_warning(job, weights, catalogue, disk)
        return []
    if weights is None:
        message = f"There are no known pretrained weights for {_name_pretrained_part(job, catalogue)}."
        return [Problem("pretrained", message, "Give a weights file, or train from scratch.")]
    found = []
    if weights.is_non_commercial:
        message = f"The weights {weights.title} are licensed for non-commercial use only ({weights.license_title})."
        remedy = "For commercial use, choose other weights or train from scratch."
        found.append(Problem("pretrained", message, remedy, "warning"))
    if is_available(weights, disk) is False:
        message = (
            f"The pretrained weights {weights.title} are unavailable, because {_explain_missing(weights, 'they')}."
        )
        choices = weights_choices(job, catalogue)
        found.append(Problem("pretrained", message, _describe_missing_remedy(job, weights, catalogue), choices=choices))
    return found


def weights_choices(job: Job, catalogue: Catalogue) -> tuple[Choice, ...]:
    """Return the remedies among which the user can choose if the pretrained weights of a job are unavailable."""
    scratch = (Choice("Train from scratch", {"pretrained": False}),) if job.model.pretrained else ()
    alternative = find_included_alternative(job, catalogue)
    if alternative is None:
        return scratch
    return (Choice(f"Use {format_default_title(alternative, catalogue)} (included)", alternative.values), *scratch)


def describe_weights(job: Job, catalogue: Catalogue, disk: Disk, in_words: Callable[[int], str] = size) -> str:
    """Describe the weights of a job, e.g. "Weights: timm/resnet50.a1_in1k, Apache-2.0, 97.8 MiB, on this machine".

    Returns "" for a model file. `in_words` formats a number of bytes.
    """
    if job.model_is_file or not _model_exists(job, catalogue):
        return ""
    weights = weights_of(job, catalogue)
    if weights is None:
        return "No pretrained weights"
    local = disk.weights(weights)
    texts = [f"Weights: {weights.title}", weights.license_title, _format_size(job, weights, local, catalogue, in_words)]
    if local is not None and not local.path:
        texts.append(_describe_download_state(job, weights, disk))
    elif local is not None and not weights.is_included:  # the title of included weights says where they are
        texts.append("on this machine")
    return ", ".join(filter(None, texts))


def _expects_weights(job: Job, chosen: Collection[str]) -> bool:
    """Return True if the user would expect the job, whose `pretrained` is off, to start from pretrained weights.

    This is not the case if the user has set `pretrained` or has chosen a recipe that doesn't set it.
    """
    if "pretrained" in chosen:
        return False
    if "recipe" not in chosen:
        return True
    recipe = next((recipe for recipe in builtin_recipes() if recipe.id == job.recipe), None)
    return recipe is not None and "pretrained" in recipe.settable_fields


def _missed_weights_warning(job: Job, weights: Weights, catalogue: Catalogue, disk: Disk) -> list[Problem]:
    """Return a warning if a job starts from random weights because its pretrained weights are unavailable."""
    if is_available(weights, disk) is not False:
        return []
    why = _explain_missing(weights, "its pretrained weights")
    model = catalogue.model(job.model.name)
    started = DefaultModel(job.model.name, job.model.encoder if model is not None and model.encoder else "")
    message = f"{format_default_title(started, catalogue)} starts from random weights, because {why}."
    remedy, choices = _describe_missing_remedy(job, weights, catalogue), weights_choices(job, catalogue)
    return [Problem("pretrained", message, remedy, "warning", choices)]


def _explain_missing(weights: Weights, subject: str) -> str:
    """Return a clause with the reason why weights are unavailable. `subject` is the word for them, such as "they"."""
    why = explain_unavailability(weights)
    return why if weights.is_included else f"{why} and {subject} aren't on this machine"


def _describe_missing_remedy(job: Job, weights: Weights, catalogue: Catalogue) -> str:
    """Return a sentence with remedies for unavailable pretrained weights, beginning with the included weights."""
    instead = [FROM_SCRATCH] if job.model.pretrained else []
    alternative = find_included_alternative(job, catalogue)
    if alternative is not None:
        alternative_flags = " ".join(flags(alternative.values))
        instead.insert(0, f"use the included {format_default_title(alternative, catalogue)} ({alternative_flags})")
    return unavailable_remedy(weights, instead)


def _describe_download_state(job: Job, weights: Weights, disk: Disk) -> str:
    """Describe the state of weights that are not on this machine, e.g. "will be downloaded".

    If the job does not use pretrained weights, no server is contacted.
    """
    if weights.is_included:
        return "missing"
    if not job.model.pretrained or job.model.weights_file:
        return "not on this machine"
    return "unreachable" if is_available(weights, disk) is False else "will be downloaded"


def _format_size(
    job: Job, weights: Weights, local: WeightsFile | None, catalogue: Catalogue, in_words: Callable[[int], str]
) -> str:
    """Format the size of the weights file, or return "" if it is unknown.

    The size of the `local` file is preferred, then the published size, then an estimate from the number of parameters.
    `in_words` formats a number of bytes.
    """
    if local is not None and local.path:
        return in_words(local.bytes)
    if weights.bytes:
        return in_words(weights.bytes)
    model = catalogue.model(job.model.name)
    if model is None or model.encoder:  # the weights are those of the encoder, whose number of parameters is unknown
        return ""
    return f"about {in_words(BYTES_PER_PARAMETER * model.parameters)}"


def _model_exists(job: Job, catalogue: Catalogue) -> bool:
    """Return True if the job's model is in the catalogue, is named as a model of timm, or is a file.

    For a task that requires a file, only a file counts. Other checks report a model that doesn't exist.
    """
    if job.model_is_file or job.model.name.startswith(TIMM):
        return True
    task = catalogue.task(job.task)
    if task is not None and task.file:  # the task needs a file as its model
        return False
    return catalogue.model(job.model.name) is not None


def _name_pretrained_part(job: Job, catalogue: Catalogue) -> str:
    """Return a name for the part of a job's model that has pretrained weights: the model itself, or its encoder."""
    if job.model_is_file:
        return "a model file"
    model = catalogue.model(job.model.name)
    if model is None:
        return job.model.name
    return f"the encoder {job.model.encoder}" if model.encoder else model.title
