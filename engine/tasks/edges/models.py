"""Models for edge detection: HED and BDCN on torchvision's VGG16, HED on any encoder, and user-defined models."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import nn
from torchvision import models

from engine.contract.job import Job
from engine.models import encoders, weights
from engine.models.base import ModelInfo, TaskError, validate_image_size
from engine.models.model_surgery import adapt_first_conv, set_heads
from engine.models.registry import build_checked, build_seeded, is_external
from engine.tasks.edges.networks import Bdcn, Hed, HedOnEncoder

IMAGE_SIZE = 480
"""Default image size in pixels. For comparison, the longer side of BSDS500's images is 481."""
MIN_SIZE = 32
"""Smallest image size in pixels. After being halved four times, such an image still has more than one pixel."""
HEAD = "head"
HED_ON_ENCODER = "hed_encoder"
ON_ENCODER = frozenset({HED_ON_ENCODER})
_TITLE_ON_ENCODER = "HED on any encoder"


class _VggModel(NamedTuple):
    """Edge detection model with VGG16 as backbone: its title in the catalogue, its class, and the type of VGG16."""

    title: str
    network: type[Hed | Bdcn]
    batch_norm: bool = False

    def build(self) -> nn.Module:
        return self.network(batch_norm=self.batch_norm)

    @property
    def backbone(self) -> str:
        """Name of the model in torchvision whose weights the backbone starts from."""
        return "vgg16_bn" if self.batch_norm else "vgg16"


_ON_VGG = {
    "hed": _VggModel("HED", Hed),
    "hed_bn": _VggModel("HED, batch norm", Hed, batch_norm=True),
    "bdcn": _VggModel("BDCN", Bdcn),
    "bdcn_bn": _VggModel("BDCN, batch norm", Bdcn, batch_norm=True),
}
"""Models with VGG16 as backbone.

Those with batch norm use vgg16_bn of torchvision, and can be trained without pretrained weights.
"""


def list_names() -> tuple[str, ...]:
    return (HED_ON_ENCODER, *_ON_VGG)


def describe_model(name: str) -> ModelInfo:
    """Describe a model for the catalogue, without building it."""
    if name == HED_ON_ENCODER:
        return ModelInfo(_TITLE_ON_ENCODER, "Edges on an encoder", IMAGE_SIZE, MIN_SIZE, 1, encoder=True)
    entry = _ON_VGG[name]
    pretrained = weights.create_torchvision_source(models.get_model_weights(entry.backbone).DEFAULT)
    return ModelInfo(entry.title, "Edges on VGG", IMAGE_SIZE, MIN_SIZE, 1, weights=pretrained)


def build(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job on the CPU, in training mode.

    The model accepts [n, channels, s, s] and returns the logits of its edge maps, [n, maps, s, s]. The last map is the
    result. New weights depend only on the job's seed. Raises TaskError.
    """
    model = build_seeded(job, list_names(), lambda: _construct(job, channels, size))
    title = f"the VGG16 of {_ON_VGG[job.model.name].title}" if job.model.name in _ON_VGG else job.model.name
    has_encoder = job.model.name in ON_ENCODER
    encoders.load_initial(job, model, HEAD, channels, title=title, has_encoder=has_encoder)
    has_head = any(name.startswith(f"{HEAD}.") for name, _ in model.named_parameters())
    if job.model.freeze_epochs and not has_head:
        message = f"{job.model.name} has no module named {HEAD} that could be trained as the head."
        raise TaskError("freeze_epochs", message, "Train all layers, or give the head that name.")
    set_heads(model, [HEAD] if has_head else [], freeze=bool(job.model.freeze_epochs))
    return model.train()


def _construct(job: Job, channels: int, size: int) -> nn.Module:
    """Build the model with new weights. Raises TaskError, for example if the images are too small for VGG16."""
    if is_external(job):
        return build_checked(job, 1, channels, size, "Make it return one value per pixel, the logit of an edge.")
    if job.model.name in ON_ENCODER:
        hed = partial(HedOnEncoder, job.model.encoder, channels)
        return encoders.construct(job, _TITLE_ON_ENCODER, size, hed)
    validate_image_size(_ON_VGG[job.model.name].title, size, MIN_SIZE)
    model = _ON_VGG[job.model.name].build()
    adapt_first_conv(model, channels)
    return model
