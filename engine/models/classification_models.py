"""Models for classification: those of torchvision and timm, a small network for MNIST, and user-defined models."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torchvision.ops import StochasticDepth

from engine.contract.catalogue import did_you_mean
from engine.contract.images import varying_size_fields
from engine.contract.job import FIELDS, TIMM, Job
from engine.data.transforms.device_transforms import Statistics
from engine.models import timm_models, torchvision_models, user_file, weights
from engine.models.base import TaskError, validate_image_size
from engine.models.mnist_cnn import MIN_SIZE, MnistCnn
from engine.models.model_surgery import adapt_first_conv, find_head, reset_large_head, set_heads
from engine.models.registry import MODELS, build_foreign, is_foreign

MNIST_CNN = "mnist_cnn"
FILE_IMAGE_SIZE = 224
"""Default image size for a model file, as for most of torchvision's models."""


def names() -> tuple[str, ...]:
    """Return the ids of the models from Footplate and torchvision. For those from timm, see `timm_models.names`."""
    return (MNIST_CNN, *torchvision_models.names())


def default_image_size(model: str) -> int:
    """Return the default side length of images for a model, in pixels."""
    if model == MNIST_CNN:
        return 28
    if timm_models.is_timm(model):
        return timm_models.image_size(model)
    if model in MODELS:
        return MODELS[model].image_size
    if model not in torchvision_models.names():
        return FILE_IMAGE_SIZE
    return torchvision_models.image_size(model)


def min_image_size(model: str) -> int:
    """Return the minimum side length of images that a model accepts, in pixels."""
    if timm_models.is_timm(model):
        return timm_models.min_image_size(model)
    return MIN_SIZE if model == MNIST_CNN else torchvision_models.min_image_size(model)


def title_and_family(model: str) -> tuple[str, str]:
    if timm_models.is_timm(model):
        return timm_models.title_and_family(model)
    if model in MODELS:
        return MODELS[model].title, MODELS[model].family
    return ("MNIST CNN", "Footplate") if model == MNIST_CNN else torchvision_models.title_and_family(model)


def statistics(model: str) -> Statistics | None:
    """Return the mean and standard deviation of colors that the model's weights expect.

    Return None if it has no weights.
    """
    if model in MODELS:
        return MODELS[model].statistics
    if timm_models.is_timm(model):
        return timm_models.statistics(model)
    return torchvision_models.statistics(model) if model in torchvision_models.names() else None


def build(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job on the CPU, in training mode. Raises TaskError.

    `channels` and `size` describe the images. New weights depend only on the job's seed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.training.seed)
        model = _construct(job, classes, channels, size)
        head = find_head(model, classes)
        if head is not None and not is_foreign(job):
            reset_large_head(model, head)
    _load_weights(job, model, head, channels, size)
    if is_foreign(job):
        what = f"Make its last layer return {classes} values per image."
        user_file.try_out(job.model.name, model, (channels, size, size), (classes,), what)
    if job.model.freeze_epochs and head is None:
        message = f"{job.model.name} has no layer with {classes} outputs that could be trained as the head."
        raise TaskError("freeze_epochs", message, "Train all layers.")
    set_heads(model, [head] if head is not None else [], freeze=bool(job.model.freeze_epochs))
    return model


def _construct(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job with its head for `classes`, without pretrained weights. Raises TaskError."""
    if is_foreign(job):
        return build_foreign(job, classes, channels)
    is_timm = timm_models.is_timm(job.model.name)
    if not is_timm and job.model.name not in names():
        known = list(names())
        raise TaskError("model", f"There is no model “{job.model.name}”.", did_you_mean(job.model.name, known))
    patch = torchvision_models.PATCH_SIZES.get(job.model.name, 1)
    validate_image_size(title_and_family(job.model.name)[0], size, min_image_size(job.model.name), patch)
    varying = varying_size_fields(job)
    if varying and _has_one_size(job.model.name):
        message = f"{title_and_family(job.model.name)[0]} is built for a fixed image size."
        remedy = f"{FIELDS[varying[0]].back_to_default}, or choose a convolutional network."
        raise TaskError(varying[0], message, remedy)
    dropout_rates = {name: job.value(name) for name in _TITLES if job.value(name) is not None}
    if job.model.name == MNIST_CNN:
        for name in dropout_rates:
            raise _missing_rate(job.model.name, name)
        return MnistCnn(classes, channels)
    if is_timm:
        return _build_timm(job, classes, channels, size, dropout_rates)
    model = _build_torchvision(job, classes, size, dropout_rates)
    adapt_first_conv(model, channels)
    return model


_TITLES = {"dropout": "dropout", "stochastic_depth": "stochastic depth"}
_TIMM_ARGUMENTS = {"dropout": "drop_rate", "stochastic_depth": "drop_path_rate"}
"""Argument of timm's builders for each dropout field of a job."""


def _build_timm(job: Job, classes: int, channels: int, size: int, dropout_rates: Mapping[str, float]) -> nn.Module:
    """Build a timm model. `dropout_rates` holds the rates of dropout that the job sets, by field.

    Raises TaskError for a rate that the model does not use.
    """
    arguments = {_TIMM_ARGUMENTS[name]: rate for name, rate in dropout_rates.items()}
    try:
        model = timm_models.construct(job.model.name, classes, channels, size, **arguments)
    except TypeError as error:
        for name in dropout_rates:
            if _TIMM_ARGUMENTS[name] in str(error):
                raise _missing_rate(job.model.name, name) from error
        raise
    for name, rate in dropout_rates.items():  # many builders ignore rates that their model doesn't use
        if rate and not _drops(model, name, rate):
            raise _missing_rate(job.model.name, name)
    return model


def _drops(model: nn.Module, name: str, rate: float) -> bool:
    """Return True if a dropout rate has taken effect in `model`.

    `name` is the job field of the rate, "dropout" or "stochastic_depth". Stochastic depth increases from layer to
    layer, so that only its presence is checked.
    """
    if name == "dropout":
        return any(
            vars(module).get("p" if isinstance(module, nn.Dropout) else "drop_rate") == rate
            for module in model.modules()
        )
    return any(vars(module).get("drop_prob") for module in model.modules())


def _build_torchvision(job: Job, classes: int, size: int, dropped: Mapping[str, float]) -> nn.Module:
    """Build a model from torchvision with the dropout rates `dropped`.

    Rates of stochastic depth are set afterwards, since not all builders accept them.
    """
    arguments = torchvision_models.arguments(job.model.name, classes, size)
    if "dropout" in dropped:
        arguments["dropout"] = dropped["dropout"]
    try:
        model = torchvision_models.construct(job.model.name, arguments)
    except TypeError as error:
        if "dropout" in str(error):
            raise _missing_rate(job.model.name, "dropout") from error
        raise
    if dropped.get("dropout") and not _drops(model, "dropout", dropped["dropout"]):  # ConvNeXt's builder ignores it
        raise _missing_rate(job.model.name, "dropout")
    if "stochastic_depth" in dropped:
        layers = [module for module in model.modules() if isinstance(module, StochasticDepth)]
        highest = max((layer.p for layer in layers), default=0.0)
        if not highest:
            raise _missing_rate(job.model.name, "stochastic_depth")
        for layer in layers:
            layer.p *= dropped["stochastic_depth"] / highest
    return model


def _missing_rate(model: str, name: str) -> TaskError:
    message = f"{title_and_family(model)[0]} has no {_TITLES[name]}."
    return TaskError(name, message, "Leave it empty, or choose a model that has it, such as EfficientNet-B0.")


def _has_one_size(model: str) -> bool:
    if timm_models.is_timm(model):
        return timm_models.has_one_size(model)
    return model in {"maxvit_t", *torchvision_models.PATCH_SIZES}


def _load_weights(job: Job, model: nn.Module, head: str | None, channels: int, size: int) -> None:
    initial = weights.initial(job, job.model.name if job.model_is_file else title_and_family(job.model.name)[0])
    if initial is None:
        return
    state = initial.state
    if timm_models.is_timm(job.model.name):
        state = _to_timm(job, state, size)
    else:
        state = weights.resize_positions(job.model.name, state, size)
    weights.load(model, state, head=head, channels=channels, field=initial.field, source=initial.source)


def _to_timm(job: Job, state: weights.State, size: int) -> weights.State:
    """Convert timm's weights to the names and the image size of the installed timm's model.

    Weights with a different head, which can only come from a file, are returned unchanged.
    """
    name = job.model.name.removeprefix(TIMM)
    try:
        return timm_models.to_current_names(name, state, **timm_models.sized(job.model.name, size))
    except Exception:  # models fail in many ways; loading then reports the missing weights
        return state
