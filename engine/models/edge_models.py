"""The models of edge detection, on a VGG16 of torchvision's weights, and the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torchvision import models

from engine.contract.catalogue import did_you_mean
from engine.contract.job import Job
from engine.models import user_file, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.model_surgery import adapt_first_conv, set_heads
from engine.models.networks.bdcn import Bdcn
from engine.models.networks.hed import Hed
from engine.models.registry import build_foreign, is_foreign

IMAGE_SIZE = 480
"""The default image size in pixels: the long side of BSDS500's images is 481."""
MIN_SIZE = 32
"""An image must have more than one pixel after being halved four times."""
HEAD = "head"


class _Known(NamedTuple):
    title: str
    build: Callable[[], nn.Module]
    backbone: str


_MODELS = {
    "hed": _Known("HED", Hed, "vgg16"),
    "hed_bn": _Known("HED, batch norm", lambda: Hed(batch_norm=True), "vgg16_bn"),
    "bdcn": _Known("BDCN", Bdcn, "vgg16"),
    "bdcn_bn": _Known("BDCN, batch norm", lambda: Bdcn(batch_norm=True), "vgg16_bn"),
}
"""The variants with batch norm use torchvision's vgg16_bn, which also learns without pretrained weights."""


def names() -> tuple[str, ...]:
    return tuple(_MODELS)


def model_info(name: str) -> ModelInfo:
    known = _MODELS[name]
    of_backbone = weights.of_torchvision(models.get_model_weights(known.backbone).DEFAULT)
    return ModelInfo(known.title, "Edges on VGG", IMAGE_SIZE, MIN_SIZE, 1, weights=of_backbone)


def build(job: Job, channels: int, size: int) -> nn.Module:
    """The job's model on the CPU, in training mode: [n, channels, s, s] to the logits of its edge maps, [n, maps, s,
    s], the last of which counts. Its fresh weights depend on the job's seed alone. Raises TaskError."""
    if not is_foreign(job) and job.model not in _MODELS:
        raise TaskError("model", f"There is no model “{job.model}”.", did_you_mean(job.model, list(_MODELS)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = _foreign(job, channels, size) if is_foreign(job) else _known(job, channels, size)
    if job.weights_file:
        state = weights.from_file(job.weights_file)
        weights.load(model, state, head=HEAD, channels=channels, field="weights_file", source=job.weights_file)
    elif job.pretrained:
        title = job.model if is_foreign(job) else f"the VGG16 of {_MODELS[job.model].title}"
        state = weights.pretrained(job, title)
        weights.load(model, state, head=HEAD, channels=channels, field="pretrained", source=weights.SOURCE)
    headed = any(name.startswith(f"{HEAD}.") for name, _ in model.named_parameters())
    if job.freeze_epochs and not headed:
        message = f"{job.model} has no module named {HEAD} that could be trained as the head."
        raise TaskError("freeze_epochs", message, "Train all layers, or give the head that name.")
    set_heads(model, [HEAD] if headed else [], freeze=bool(job.freeze_epochs))
    return model.train()


def _known(job: Job, channels: int, size: int) -> nn.Module:
    if size < MIN_SIZE:
        message = f"{_MODELS[job.model].title} needs images of at least {MIN_SIZE} px."
        raise TaskError("image_size", message, f"Set {MIN_SIZE} or more, or leave it empty.")
    model = _MODELS[job.model].build()
    adapt_first_conv(model, channels)
    return model


def _foreign(job: Job, channels: int, size: int) -> nn.Module:
    model = build_foreign(job, 1, channels)
    remedy = "Make it return one value per pixel, the logit of an edge."
    user_file.try_out(job.model, model, (channels, size, size), (1, size, size), remedy)
    return model
