"""Models for classification: those of torchvision and timm, a small network for MNIST, and user-defined models."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torchvision.ops import StochasticDepth

from engine.contract.catalogue import suggest_name
from engine.contract.images import varying_size_fields
from engine.contract.job import FIELDS, TIMM, Job
from engine.data.transforms.device_transforms import Statistics
from engine.models import timm_models, torchvision_models, user_file, weights
from engine.models.base import TaskError, validate_image_size
from engine.models.mnist_cnn import MIN_SIZE, MnistCnn
from engine.models.model_surgery import adapt_first_conv, find_head, reset_large_head
from engine.models.registry import MODELS, build_external, is_external, mark_heads
from engine.system.format import counted

MNIST_CNN = "mnist_cnn"
MODEL_FILE_IMAGE_SIZE = 224
"""Default side length of images in pixels for a model from a user's file, as for most of torchvision's models."""


def list_names() -> tuple[str, ...]:
    """Return the ids of the models from Footplate and torchvision. `timm_models.list_names` returns those from timm."""
    return (MNIST_CNN, *torchvision_models.list_names())


def get_default_image_size(model: str) -> int:
    """Return the default side length of images for a built-in model or a model file, in pixels."""
    if model == MNIST_CNN:
        return 28
    if timm_models.is_timm(model):
        return timm_models.get_image_size(model)
    if model not in torchvision_models.list_names():
        return MODEL_FILE_IMAGE_SIZE
    return torchvision_models.get_image_size(model)


def get_min_image_size(model: str) -> int:
    """Return the minimum side length of images that a model accepts, in pixels."""
    if timm_models.is_timm(model):
        return timm_models.get_min_image_size(model)
    return MIN_SIZE if model == MNIST_CNN else torchvision_models.get_min_image_size(model)


def get_title_and_family(model: str) -> tuple[str, str]:
    """Return the title and family of a model in the catalogue."""
    if timm_models.is_timm(model):
        return timm_models.get_title_and_family(model)
    if model in MODELS:
        return MODELS[model].title, MODELS[model].family
    return ("MNIST CNN", "Footplate") if model == MNIST_CNN else torchvision_models.get_title_and_family(model)


def get_statistics(model: str) -> Statistics | None:
    """Return the mean and standard deviation of colors that the model's weights expect.

    Return None if it has no weights.
    """
    if model in MODELS:
        return MODELS[model].statistics
    if timm_models.is_timm(model):
        return timm_models.get_statistics(model)
    return torchvision_models.get_statistics(model) if model in torchvision_models.list_names() else None


def build(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job on the CPU, in training mode. Raises TaskError.

    `channels` and `size` describe the images. New weights depend only on the job's seed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.training.seed)
        model = _construct(job, classes, channels, size)
        head = find_head(model, classes)
        if head is not None and not is_external(job):
            reset_large_head(model, head)
    _load_weights(job, model, head, channels, size)
    if is_external(job):
        remedy = f"Make its last layer return {counted(classes, 'value')} per image."
        user_file.try_out(job.model.name, model, torch.zeros(2, channels, size, size), (classes,), remedy)
    mark_heads(job, model, [head] if head is not None else [], job.model.name, classes)
    return model


def _construct(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job with its head for `classes`, without pretrained weights. Raises TaskError."""
    if is_external(job):
        return build_external(job, classes, channels)
    is_timm = timm_models.is_timm(job.model.name)
    if not is_timm and job.model.name not in list_names():
        known_names = list(list_names())
        raise TaskError("model", f"There is no model “{job.model.name}”.", suggest_name(job.model.name, known_names))
    title, _ = get_title_and_family(job.model.name)
    patch = torchvision_models.PATCH_SIZES.get(job.model.name, 1)
    validate_image_size(title, size, get_min_image_size(job.model.name), patch)
    varying_fields = varying_size_fields(job)
    if varying_fields and _has_one_size(job.model.name):
        message = f"{title} is built for a fixed image size."
        remedy = f"{FIELDS[varying_fields[0]].back_to_default}, or choose a convolutional network."
        raise TaskError(varying_fields[0], message, remedy)
    dropout_rates = {name: job.value(name) for name in _RATE_TITLES if job.value(name) is not None}
    if job.model.name == MNIST_CNN:
        if dropout_rates:
            raise _create_missing_rate_error(job.model.name, next(iter(dropout_rates)))
        return MnistCnn(classes, channels)
    if is_timm:
        return _build_timm(job, classes, channels, size, dropout_rates)
    model = _build_torchvision(job, classes, size, dropout_rates)
    adapt_first_conv(model, channels)
    return model


_RATE_TITLES = {"dropout": "dropout", "stochastic_depth": "stochastic depth"}
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
                raise _create_missing_rate_error(job.model.name, name) from error
        raise
    for name, rate in dropout_rates.items():  # many builders ignore rates that their model doesn't use
        if rate and not _has_dropout_rate(model, name, rate):
            raise _create_missing_rate_error(job.model.name, name)
    return model


def _has_dropout_rate(model: nn.Module, name: str, rate: float) -> bool:
    """Return True if a dropout rate has taken effect in `model`.

    `name` is the job field of the rate, "dropout" or "stochastic_depth". Stochastic depth increases from layer to
    layer, so that only its presence is checked.
    """
    if name == "stochastic_depth":
        return any(vars(module).get("drop_prob") for module in model.modules())
    for module in model.modules():
        # Some of timm's models apply dropout without a layer for it, with the rate in their attribute `drop_rate`.
        if vars(module).get("p" if isinstance(module, nn.Dropout) else "drop_rate") == rate:
            return True
    return False


def _build_torchvision(job: Job, classes: int, size: int, dropout_rates: Mapping[str, float]) -> nn.Module:
    """Build a model from torchvision with the dropout rates `dropout_rates`.

    Rates of stochastic depth are set afterwards, since not all builders accept them.
    """
    arguments = torchvision_models.create_arguments(job.model.name, classes, size)
    if "dropout" in dropout_rates:
        arguments["dropout"] = dropout_rates["dropout"]
    try:
        model = torchvision_models.construct(job.model.name, arguments)
    except TypeError as error:
        if "dropout" in str(error):
            raise _create_missing_rate_error(job.model.name, "dropout") from error
        raise
    dropout = dropout_rates.get("dropout")
    if dropout and not _has_dropout_rate(model, "dropout", dropout):  # ConvNeXt's builder ignores it
        raise _create_missing_rate_error(job.model.name, "dropout")
    if "stochastic_depth" in dropout_rates:
        # Rates increase from layer to layer. The job sets the highest one.
        layers = [module for module in model.modules() if isinstance(module, StochasticDepth)]
        highest = max((layer.p for layer in layers), default=0.0)
        if not highest:
            raise _create_missing_rate_error(job.model.name, "stochastic_depth")
        for layer in layers:
            layer.p *= dropout_rates["stochastic_depth"] / highest
    return model


def _create_missing_rate_error(model: str, name: str) -> TaskError:
    """Return the error for a job that sets the dropout field `name` although the model has no such dropout."""
    message = f"{get_title_and_family(model)[0]} has no {_RATE_TITLES[name]}."
    return TaskError(name, message, "Leave it empty, or choose a model that has it, such as EfficientNet-B0.")


def _has_one_size(model: str) -> bool:
    """Return True if the model is built for images of one size, and accepts no others."""
    if timm_models.is_timm(model):
        return timm_models.has_one_size(model)
    return model in {"maxvit_t", *torchvision_models.PATCH_SIZES}


def _load_weights(job: Job, model: nn.Module, head: str | None, channels: int, size: int) -> None:
    """Load the weights that the job starts from into the model, if there are any. Raises TaskError.

    The layer named `head` is loaded only if its shape fits. The first layer is adapted to `channels` image channels,
    and learned positions to images of `size` px.
    """
    title = job.model.name if job.model_is_file else get_title_and_family(job.model.name)[0]
    initial = weights.read_initial(job, title)
    if initial is None:
        return
    if timm_models.is_timm(job.model.name):
        state = _to_timm_names(job, initial.state, size)
    else:
        state = weights.resize_positions(job.model.name, initial.state, size)
    weights.load(model, initial._replace(state=state), head=head, channels=channels)


def _to_timm_names(job: Job, state: weights.State, size: int) -> weights.State:
    """Convert timm's weights to the names and the image size of the model in the installed timm.

    Weights with a different head, which can only come from a file, are returned unchanged.
    """
    name = job.model.name.removeprefix(TIMM)
    try:
        return timm_models.to_current_names(name, state, **timm_models.get_size_arguments(job.model.name, size))
    except Exception:  # models fail in many ways; loading then reports the missing weights
        return state
