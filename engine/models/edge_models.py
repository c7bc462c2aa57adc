"""Models of edge detection: HED and BDCN on torchvision's VGG16, HED on any encoder, and user-defined ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torchvision import models

from engine.contract.catalogue import did_you_mean
from engine.contract.job import Job
from engine.data.transforms.device_transforms import Statistics
from engine.models import encoders, registry, user_file, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.model_surgery import adapt_first_conv, set_heads
from engine.models.networks.bdcn import Bdcn
from engine.models.networks.hed import Hed, HedOnEncoder
from engine.models.registry import build_foreign, is_foreign

IMAGE_SIZE = 480
"""The default image size in pixels: the long side of BSDS500's images is 481."""
MIN_SIZE = 32
"""An image must have more than one pixel after being halved four times."""
HEAD = "head"
ON_ENCODER = "hed_encoder"
_TITLE_ON_ENCODER = "HED on any encoder"


class _OnVgg(NamedTuple):
    title: str
    build: Callable[[], nn.Module]
    backbone: str


_ON_VGG = {
    "hed": _OnVgg("HED", Hed, "vgg16"),
    "hed_bn": _OnVgg("HED, batch norm", lambda: Hed(batch_norm=True), "vgg16_bn"),
    "bdcn": _OnVgg("BDCN", Bdcn, "vgg16"),
    "bdcn_bn": _OnVgg("BDCN, batch norm", lambda: Bdcn(batch_norm=True), "vgg16_bn"),
}
"""The variants with batch norm use torchvision's vgg16_bn, which also learns without pretrained weights."""


def names() -> tuple[str, ...]:
    return (ON_ENCODER, *_ON_VGG)


def model_info(name: str) -> ModelInfo:
    if name == ON_ENCODER:
        return ModelInfo(_TITLE_ON_ENCODER, "Edges on an encoder", IMAGE_SIZE, MIN_SIZE, 1, encoder=True)
    known = _ON_VGG[name]
    of_backbone = weights.of_torchvision(models.get_model_weights(known.backbone).DEFAULT)
    return ModelInfo(known.title, "Edges on VGG", IMAGE_SIZE, MIN_SIZE, 1, weights=of_backbone)


def statistics(job: Job) -> Statistics:
    """Return the mean and standard deviation of the colors that the model's weights expect."""
    is_on_encoder = job.model == ON_ENCODER
    return encoders.statistics(job.encoder) if is_on_encoder else registry.statistics(job.model, encoders.IMAGENET)


def build(job: Job, channels: int, size: int) -> nn.Module:
    """The job's model on the CPU, in training mode: [n, channels, s, s] to the logits of its edge maps, [n, maps, s,
    s], the last of which counts. Its fresh weights depend on the job's seed alone. Raises TaskError.
    """
    if not is_foreign(job) and job.model not in names():
        raise TaskError("model", f"There is no model “{job.model}”.", did_you_mean(job.model, list(names())))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = _construct(job, channels, size)
    title = f"the VGG16 of {_ON_VGG[job.model].title}" if job.model in _ON_VGG else job.model
    has_encoder = job.model == ON_ENCODER
    encoders.load_initial(job, model, HEAD, channels, title=title, has_encoder=has_encoder)
    headed = any(name.startswith(f"{HEAD}.") for name, _ in model.named_parameters())
    if job.freeze_epochs and not headed:
        message = f"{job.model} has no module named {HEAD} that could be trained as the head."
        raise TaskError("freeze_epochs", message, "Train all layers, or give the head that name.")
    set_heads(model, [HEAD] if headed else [], freeze=bool(job.freeze_epochs))
    return model.train()


def _construct(job: Job, channels: int, size: int) -> nn.Module:
    if is_foreign(job):
        return _foreign(job, channels, size)
    if job.model == ON_ENCODER:
        hed = partial(HedOnEncoder, job.encoder, channels)
        return encoders.construct(job, _TITLE_ON_ENCODER, size, hed)
    if size < MIN_SIZE:
        message = f"{_ON_VGG[job.model].title} needs images of at least {MIN_SIZE} px."
        raise TaskError("image_size", message, f"Set {MIN_SIZE} or more, or leave it empty.")
    model = _ON_VGG[job.model].build()
    adapt_first_conv(model, channels)
    return model


def _foreign(job: Job, channels: int, size: int) -> nn.Module:
    model = build_foreign(job, 1, channels)
    remedy = "Make it return one value per pixel, the logit of an edge."
    user_file.try_out(job.model, model, (channels, size, size), (1, size, size), remedy)
    return model
