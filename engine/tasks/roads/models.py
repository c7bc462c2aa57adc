"""Models for road extraction from Batra et al. 2019, and user-defined models."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from torch import nn

from engine.contract.job import Job
from engine.models import encoders
from engine.models.base import ModelInfo, TaskError, validate_image_size
from engine.models.model_surgery import set_heads
from engine.models.registry import build_checked, build_seeded, is_external
from engine.tasks.roads.directions import DIRECTIONS
from engine.tasks.roads.networks import STRIDE, LinkNetMTL, StackHourglassNetMTL

CLASSES = 2
SCORES = CLASSES + DIRECTIONS + 1
"""Number of scores per pixel: background and line, the directions, and the background of the directions."""
IMAGE_SIZE = 256
"""Default image size in pixels, which is the size of the crops in Batra et al. 2019."""
HOURGLASS = "hourglass_mtl"
LINKNET = "linknet_mtl"
ON_ENCODER = frozenset({LINKNET})


class _Names(NamedTuple):
    """Title and family of a model in the catalogue."""

    title: str
    family: str


_NAMES = {
    LINKNET: _Names("LinkNet, roads and directions", "LinkNet"),
    HOURGLASS: _Names("Stacked hourglass, roads and directions", "Hourglass"),
}


def list_names() -> tuple[str, ...]:
    return tuple(_NAMES)


def describe_model(name: str) -> ModelInfo:
    """Describe a model for the catalogue, without building it."""
    title, family = _NAMES[name]
    return ModelInfo(title, family, IMAGE_SIZE, 2 * STRIDE, CLASSES, encoder=name == LINKNET, image_size_step=STRIDE)


def build(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job on the CPU, in training mode.

    The model accepts [n, channels, s, s] and returns [n, SCORES, pixels] (see `networks.unpack_maps`). New weights
    depend only on the job's seed. Raises TaskError.
    """
    title = _NAMES[job.model.name].title if job.model.name in _NAMES else job.model.name
    has_encoder = job.model.name in ON_ENCODER
    if not has_encoder and job.model.freeze_epochs:
        message = f"{title} has no pretrained backbone that could be frozen."
        raise TaskError("freeze_epochs", message, "Train all layers.")
    model = build_seeded(job, list_names(), lambda: _construct(job, title, channels, size))
    encoders.load_initial(job, model, head=None, channels=channels, title=title, has_encoder=has_encoder)
    # Without an encoder, no part is frozen or has another learning rate, so that no head is marked.
    heads = [name for name, _ in model.named_children() if name != "encoder"] if has_encoder else []
    set_heads(model, heads, freeze=bool(job.model.freeze_epochs))
    return model.train()


def _construct(job: Job, title: str, channels: int, size: int) -> nn.Module:
    """Build the road extraction model of a job with new weights. Raises TaskError, which names the model `title`."""
    if is_external(job):
        remedy = f"Make it return {CLASSES} scores for background and line and {DIRECTIONS + 1} for the direction of each pixel."
        return build_checked(job, SCORES, channels, size, remedy)
    if job.model.name == LINKNET:
        linknet = partial(LinkNetMTL, job.model.encoder, CLASSES, DIRECTIONS + 1, channels)
        return encoders.construct(job, title, size, linknet)
    validate_image_size(title, size, STRIDE, STRIDE)
    return StackHourglassNetMTL(CLASSES, DIRECTIONS + 1, channels)
