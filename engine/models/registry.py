"""Models from outside Footplate: those of plug-ins and transformers, by id, and those in users' Python files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import torch
from torch import nn

from engine.contract.catalogue import command_if_missing, load_builtin_catalogue, suggest_name
from engine.contract.job import TIMM, Job
from engine.contract.options import list_options, option_problems, options_of
from engine.data.transforms.device_transforms import Statistics
from engine.models import user_file
from engine.models.base import Model, TaskError
from engine.models.hugging_face import variants as hugging_face
from engine.models.model_surgery import adapt_first_conv, set_heads
from engine.system.format import counted
from engine.system.plugins import Registry, UnusablePluginError


def _validate_plugin(name: str, loaded: object) -> Model:
    """Return `loaded`, the object that a plug-in registers as the model `name`.

    Raises UnusablePluginError, or TypeError for an unusable option, if it is not valid.
    """
    if not isinstance(loaded, Model):
        raise UnusablePluginError(f"it is a {type(loaded).__name__}, not a Model of engine.models.registry")
    if name.startswith(TIMM) or name.endswith(".py"):
        raise UnusablePluginError("its name reads as that of a timm model or of a file")
    list_options(loaded.options)  # raises TypeError for a field that can't be an option
    return loaded


def _list_catalogue_ids() -> set[str]:
    """Return the ids of all models in the catalogue. Models from plug-ins can't use these ids."""
    return {model.id for model in load_builtin_catalogue().models}


MODELS: Registry[Model] = Registry("footplate.models", hugging_face.MODELS, _validate_plugin, _list_catalogue_ids)
"""Models of transformers and of plug-ins, by id. Both are described by `Model`."""


def is_external(job: Job) -> bool:
    """Return True if a job's model comes from transformers, a plug-in or a user's file.

    Such a model may contain any kind of module.
    """
    return job.model_is_file or job.model.name in MODELS


def build_seeded(job: Job, names: Iterable[str], constructor: Callable[[], nn.Module]) -> nn.Module:
    """Return the model that `constructor` builds. Its new weights depend only on the job's seed.

    `names` are the ids of the built-in models. Raises TaskError if the job's model is neither built-in nor external.
    """
    known_names = list(names)
    if not is_external(job) and job.model.name not in known_names:
        raise TaskError("model", f"There is no model “{job.model.name}”.", suggest_name(job.model.name, known_names))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.training.seed)
        return constructor()


def build_external(job: Job, classes: int, channels: int, *, images: bool = True) -> nn.Module:
    """Build a model from a plug-in or a user's file on the CPU, for samples with `channels` channels. Raises TaskError.

    `images` is True if the samples are images.
    """
    if not job.model_is_file:
        return _build_plugin(job, classes, channels).cpu().train()
    model = user_file.build(job.model.name, job.model.model_file_sha256, classes)
    if images:
        adapt_first_conv(model, channels)
    return model.cpu().train()


def build_checked(job: Job, outputs: int, channels: int, size: int, remedy: str) -> nn.Module:
    """Build a model from a plug-in or a user's file, and check that it returns `outputs` values per pixel.

    Raises TaskError with `remedy` otherwise.
    """
    model = build_external(job, outputs, channels)
    user_file.try_out(job.model.name, model, torch.zeros(2, channels, size, size), (outputs, size, size), remedy)
    return model


def mark_heads(job: Job, model: nn.Module, heads: Sequence[str], title: str, outputs: int) -> None:
    """Mark the modules named in `heads` as the model's head. Freeze all others if the job's `freeze_epochs` is set.

    Raises TaskError if the backbone would be frozen, but there is no head. The message names the model by its `title`
    and states that no layer has `outputs` outputs.
    """
    if job.model.freeze_epochs and not heads:
        message = f"{title} has no layer with {counted(outputs, 'output')} that could be trained as the head."
        raise TaskError("freeze_epochs", message, "Train all layers.")
    set_heads(model, heads, freeze=bool(job.model.freeze_epochs))


def get_image_size(job: Job, default: int) -> int:
    """Return the side length of a job's images in pixels.

    `default` is the default for the built-in models of its task.
    """
    if job.data.image_size is not None:
        return job.data.image_size
    return MODELS[job.model.name].image_size if job.model.name in MODELS else default


def get_statistics(model: str, default: Statistics) -> Statistics:
    """Return the mean and standard deviation of colors that a model expects.

    `default` are those of the task's built-in models.
    """
    return (MODELS[model].statistics if model in MODELS else None) or default


def has_own_loss(job: Job) -> bool:
    """Return True if the job's model, from transformers or a plug-in, computes its own losses for segmentation."""
    return job.model.name in MODELS and MODELS[job.model.name].own_loss


def _build_plugin(job: Job, classes: int, channels: int) -> nn.Module:
    """Build a model that a package has registered. Raises TaskError if the package is missing or its code fails."""
    entry = MODELS[job.model.name]
    subject = f"The model {entry.title} of the package {MODELS.packages.get(job.model.name, entry.extra)}"
    if missing := command_if_missing(entry.extra):
        raise TaskError("model", f"{entry.title} needs a package that is not installed.", f"Run: {missing}")
    options = () if entry.options is None else (_read_options(job, entry.options),)
    try:
        model = entry.build(classes, channels, *options)
    except Exception as error:  # a plug-in's code may raise anything
        message = f"{subject} can't be built: {type(error).__name__}: {error}."
        raise TaskError("model", message, "Choose another model, or fix the package.") from error
    if not isinstance(model, nn.Module):
        raise TaskError("model", f"{subject} is a {type(model).__name__}, not a torch.nn.Module.", "Fix the package.")
    return model


def _read_options(job: Job, options_type: type[msgspec.Struct]) -> msgspec.Struct:
    """Return the job's options for a plug-in's model as an instance of `options_type`, the Struct that declares them.

    Raises TaskError if one of them is invalid.
    """
    fields = list_options(options_type)
    names = [field.name for field in fields]
    problems = option_problems({name: value for name, value in job.options.items() if name in names}, fields)
    if problems:
        raise TaskError.of(problems[0])
    return options_of(job, options_type)
