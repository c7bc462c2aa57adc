"""The models of classification: torchvision's, timm's, the small MNIST network, and the user's own."""

from __future__ import annotations

import torch
from torch import nn

from engine.contract.catalogue import did_you_mean
from engine.contract.job import Job
from engine.tasks import timm_models, torchvision_models, user_file, weights
from engine.tasks.adapt import adapt_first_conv, begin_small, find_head, set_heads
from engine.tasks.base import Statistics, TaskError
from engine.tasks.mnist_cnn import MIN_SIZE, MnistCnn

MNIST_CNN = "mnist_cnn"
FILE_IMAGE_SIZE = 224
"""What a model file's pictures measure where the user does not say, as for most of torchvision's."""


def names() -> tuple[str, ...]:
    """The ids of all models that come with Footplate or torchvision; timm's are apart (`timm_models.names`)."""
    return (MNIST_CNN, *torchvision_models.names())


def default_image_size(model: str) -> int:
    """The side of the pictures, in pixels, where the job leaves it open."""
    if model == MNIST_CNN:
        return 28
    if timm_models.is_timm(model):
        return timm_models.image_size(model)
    if model not in torchvision_models.names():
        return FILE_IMAGE_SIZE
    return torchvision_models.image_size(model)


def min_image_size(model: str) -> int:
    """The least side of the pictures that the model takes, in pixels."""
    if timm_models.is_timm(model):
        return timm_models.min_image_size(model)
    return MIN_SIZE if model == MNIST_CNN else torchvision_models.min_image_size(model)


def title_and_family(model: str) -> tuple[str, str]:
    if timm_models.is_timm(model):
        return timm_models.title_and_family(model)
    return ("MNIST CNN", "Footplate") if model == MNIST_CNN else torchvision_models.title_and_family(model)


def statistics(model: str) -> Statistics | None:
    """The statistics of the colours that the model is made for, or None where it is made for none."""
    if timm_models.is_timm(model):
        return timm_models.statistics(model)
    return torchvision_models.statistics(model) if model in torchvision_models.names() else None


def build(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """The job's model, on the CPU, in training mode; its fresh weights depend on the job's seed alone.

    Raises TaskError.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = _construct(job, classes, channels, size)
        head = find_head(model, classes)
        if head is not None and not job.model_is_file:
            begin_small(model, head)
    _load_weights(job, model, head, channels, size)
    if job.model_is_file:
        what = f"Let its last layer give {classes} values per picture."
        user_file.try_out(job.model, model, (channels, size, size), (classes,), what)
    if job.freeze_epochs and head is None:
        message = f"{job.model} has no layer with {classes} outputs that could be trained alone."
        raise TaskError("freeze_epochs", message, "Train all layers.")
    set_heads(model, [head] if head is not None else [], freeze=bool(job.freeze_epochs))
    return model


def _construct(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    if job.model_is_file:
        model = user_file.build(job.model, job.model_file_sha256, classes)
        adapt_first_conv(model, channels)
        return model.cpu().train()
    of_timm = timm_models.is_timm(job.model)
    if not of_timm and job.model not in names():
        known = list(names())
        raise TaskError("model", f"There is no model “{job.model}”.", did_you_mean(job.model, known))
    if size < min_image_size(job.model):
        least = min_image_size(job.model)
        message = f"{title_and_family(job.model)[0]} needs pictures of at least {least} px."
        raise TaskError("image_size", message, f"Set {least} or more, or leave it empty.")
    if job.progressive_from is not None and _has_one_size(job.model):
        message = f"{title_and_family(job.model)[0]} is built for images of one size."
        raise TaskError("progressive_from", message, "Empty it, or choose a convolutional network.")
    if job.model == MNIST_CNN:
        return MnistCnn(classes, channels)
    if of_timm:
        return timm_models.construct(job.model, classes, channels, size)
    patch = torchvision_models.PATCH_SIZES.get(job.model, 1)
    if size % patch:
        message = f"{title_and_family(job.model)[0]} takes sides that are a multiple of {patch} px; {size} is not."
        nearest = max(patch, round(size / patch) * patch)
        raise TaskError("image_size", message, f"Set {nearest}, or leave it empty.")
    model = torchvision_models.construct(job.model, torchvision_models.arguments(job.model, classes, size))
    adapt_first_conv(model, channels)
    return model


def _has_one_size(model: str) -> bool:
    if timm_models.is_timm(model):
        return timm_models.has_one_size(model)
    return model in {"maxvit_t", *torchvision_models.PATCH_SIZES}


def _load_weights(job: Job, model: nn.Module, head: str | None, channels: int, size: int) -> None:
    if job.weights_file:
        state = weights.from_file(job.weights_file)
        field, source = "weights_file", job.weights_file
    elif job.pretrained:
        if job.model_is_file or job.model == MNIST_CNN or timm_models.is_timm(job.model):
            message = f"Footplate knows no pretrained weights for {job.model}."
            raise TaskError("pretrained", message, weights.SCRATCH)
        state = weights.pretrained(job.model, title_and_family(job.model)[0])
        field, source = "pretrained", "The file of pretrained weights"
    else:
        return
    state = weights.resize_positions(job.model, state, size)
    weights.load(model, state, head=head, channels=channels, field=field, source=source)
