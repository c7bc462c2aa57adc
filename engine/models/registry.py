"""Models from outside Footplate: those of plug-ins and transformers, by id, and those in users' Python files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import torch
from torch import nn

from engine.contract.catalogue import did_you_mean, missing_extra, shipped_catalogue
from engine.contract.job import TIMM, Job
from engine.contract.options import declared, option_problems, options_of
from engine.data.transforms.device_transforms import Statistics
from engine.models import user_file
from engine.models.base import Model, TaskError
from engine.models.hugging_face import variants as hugging_face
from engine.models.model_surgery import adapt_first_conv
from engine.system.plugins import Registry, Unusable


def _accept(name: str, loaded: object) -> Model:
    if not isinstance(loaded, Model):
        raise Unusable(f"it is a {type(loaded).__name__}, not a Model of engine.models.registry")
    if name.startswith(TIMM) or name.endswith(".py"):
        raise Unusable("its name reads as that of a timm model or of a file")
    declared(loaded.options)
    return loaded


def _taken() -> set[str]:
    return {model.id for model in shipped_catalogue().models}


MODELS: Registry[Model] = Registry("footplate.models", hugging_face.MODELS, _accept, _taken)
"""Models of transformers and of plug-ins, by id. Both are described by `Model`."""


def is_foreign(job: Job) -> bool:
    """Return True if a job's model comes from a library or a user's file.

    Such a model may contain any kind of module.
    """
    return job.model_is_file or job.model.name in MODELS


def build_seeded(job: Job, names: Iterable[str], constructor: Callable[[], nn.Module]) -> nn.Module:
    """Return the model that `constructor` builds. Its new weights depend only on the job's seed.

    `names` are the ids of the built-in models. Raises TaskError if the job's model is neither one of them nor from
    outside Footplate.
    """
    known = list(names)
    if not is_foreign(job) and job.model.name not in known:
        raise TaskError("model", f"There is no model “{job.model.name}”.", did_you_mean(job.model.name, known))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.training.seed)
        return constructor()


def build_foreign(job: Job, classes: int, channels: int, *, images: bool = True) -> nn.Module:
    """Build a model from a plug-in or a user's file on the CPU, for samples with `channels` channels. Raises TaskError.

    `images` is True if the samples are images.
    """
    if not job.model_is_file:
        return _build_plugin(job, classes, channels).cpu().train()
    model = user_file.build(job.model.name, job.model.model_file_sha256, classes)
    if images:
        adapt_first_conv(model, channels)
    return model.cpu().train()


def image_size(job: Job, usual: int) -> int:
    """Return the side length of a job's images in pixels.

    `usual` is the default for the built-in models of its task.
    """
    if job.data.image_size is not None:
        return job.data.image_size
    return MODELS[job.model.name].image_size if job.model.name in MODELS else usual


def statistics(model: str, usual: Statistics) -> Statistics:
    """Return the mean and standard deviation of colors that a model expects.

    `usual` are those of the task's built-in models.
    """
    return (MODELS[model].statistics if model in MODELS else None) or usual


def has_own_loss(job: Job) -> bool:
    """Return True if the job's model, from transformers or a plug-in, computes its own losses for segmentation."""
    return job.model.name in MODELS and MODELS[job.model.name].own_loss


def _build_plugin(job: Job, classes: int, channels: int) -> nn.Module:
    """Build a model that a package has registered. Raises TaskError if the package is missing or its code fails."""
    known = MODELS[job.model.name]
    where = f"The model {known.title} of the package {MODELS.packages.get(job.model.name, known.extra)}"
    if missing := missing_extra(known.extra):
        raise TaskError("model", f"{known.title} needs a package that is not installed.", f"Run: {missing}")
    options = () if known.options is None else (_options(job, known.options),)
    try:
        model = known.build(classes, channels, *options)
    except Exception as error:  # a plug-in's code may raise anything
        message = f"{where} can't be built: {type(error).__name__}: {error}."
        raise TaskError("model", message, "Choose another model, or fix the package.") from error
    if not isinstance(model, nn.Module):
        raise TaskError("model", f"{where} is a {type(model).__name__}, not a torch.nn.Module.", "Fix the package.")
    return model


def _options(job: Job, kind: type[msgspec.Struct]) -> msgspec.Struct:
    fields = declared(kind)
    names = [field.name for field in fields]
    wrong = option_problems({name: value for name, value in job.options.items() if name in names}, fields)
    if wrong:
        raise TaskError(wrong[0].field, wrong[0].message, wrong[0].remedy)
    return options_of(job, kind)
