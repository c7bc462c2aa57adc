"""The models of road extraction: those of Batra et al. 2019, and the user's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchvision import models

from engine.contract.catalogue import did_you_mean
from engine.contract.job import Job
from engine.data.datasets.orientation import DIRECTIONS
from engine.models import user_file, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.model_surgery import set_heads
from engine.models.networks.road_networks import STRIDE, LinkNetMTL, StackHourglassNetMTL
from engine.models.registry import build_foreign, is_foreign

CLASSES = 2
SCORES = CLASSES + DIRECTIONS + 1
"""The outputs per pixel: background and line, then the directions with a background class of their own."""
IMAGE_SIZE = 256
"""The default image size in pixels: the crops of Batra et al. 2019."""
HOURGLASS = "hourglass_mtl"
_ENCODERS = {"linknet34_mtl": "resnet34", "linknet18_mtl": "resnet18"}
_TITLES = {
    HOURGLASS: ("Stacked hourglass, roads and directions", "Hourglass"),
    "linknet34_mtl": ("LinkNet-34, roads and directions", "LinkNet"),
    "linknet18_mtl": ("LinkNet-18, roads and directions", "LinkNet"),
}
_OF_RESNET = {
    "conv1": "firstconv", "bn1": "firstbn", "layer1": "encoder1", "layer2": "encoder2", "layer3": "encoder3",
    "layer4": "encoder4",
}  # fmt: skip
"""LinkNet's names of the modules that come from torchvision's ResNet."""
_DECODERS = tuple(
    f"{branch}{part}"
    for branch in ("", "a_")
    for part in ("decoder4", "decoder3", "decoder2", "decoder1", "finaldeconv1", "finalconv2", "finalconv3")
)


def names() -> tuple[str, ...]:
    return tuple(_TITLES)


def model_info(name: str) -> ModelInfo:
    title, family = _TITLES[name]
    if name == HOURGLASS:
        return ModelInfo(title, family, IMAGE_SIZE, 2 * STRIDE, CLASSES)
    of_encoder = weights.of_torchvision(models.get_model_weights(_ENCODERS[name]).DEFAULT)
    return ModelInfo(title, family, IMAGE_SIZE, 2 * STRIDE, CLASSES, weights=of_encoder)


def build(job: Job, channels: int, size: int) -> nn.Module:
    """The job's model on the CPU, in training mode: [n, channels, s, s] to [n, SCORES, pixels], as
    `road_networks.unpack` takes it. Its fresh weights depend on the job's seed alone. Raises TaskError."""
    if not is_foreign(job) and job.model not in names():
        raise TaskError("model", f"There is no model “{job.model}”.", did_you_mean(job.model, list(names())))
    if not is_foreign(job) and size % STRIDE:
        nearest = max(2 * STRIDE, round(size / STRIDE) * STRIDE)
        message = f"{_title(job)} takes sides that are a multiple of {STRIDE} px; {size} is not."
        raise TaskError("image_size", message, f"Set {nearest}, or leave it empty.")
    if job.model not in _ENCODERS and job.freeze_epochs:
        message = f"{_title(job)} has no pretrained backbone that could be frozen."
        raise TaskError("freeze_epochs", message, "Train all layers.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = _foreign(job, channels, size) if is_foreign(job) else network(job.model, channels)
    if job.weights_file:
        state = weights.from_file(job.weights_file)
        weights.load(model, state, head=None, channels=channels, field="weights_file", source=job.weights_file)
    elif job.pretrained:
        _start_from_imagenet(job, model, channels)
    set_heads(model, _DECODERS if job.model in _ENCODERS else (), freeze=bool(job.freeze_epochs))
    return model.train()


def _title(job: Job) -> str:
    return job.model if is_foreign(job) else _TITLES[job.model][0]


def network(name: str, channels: int = 3) -> nn.Module:
    """One of the networks with fresh weights, for images with a side that is a multiple of `STRIDE` px."""
    if name == HOURGLASS:
        return StackHourglassNetMTL(CLASSES, DIRECTIONS + 1, channels)
    return LinkNetMTL(_ENCODERS[name], CLASSES, DIRECTIONS + 1, channels)


def _foreign(job: Job, channels: int, size: int) -> nn.Module:
    model = build_foreign(job, SCORES, channels)
    remedy = (
        f"Make it return {CLASSES} scores for background and line and {DIRECTIONS + 1} for the direction of each pixel."
    )
    user_file.try_out(job.model, model, (channels, size, size), (SCORES, size, size), remedy)
    return model


def _start_from_imagenet(job: Job, model: nn.Module, channels: int) -> None:
    state = model.state_dict() | of_resnet(weights.pretrained(job, _title(job)))
    weights.load(model, state, head=None, channels=channels, field="pretrained", source=weights.SOURCE)


def of_resnet(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of torchvision's ResNet by the names that LinkNet's encoder has for them, without the last layer."""
    parts = ((name.partition("."), tensor) for name, tensor in state.items())
    return {f"{_OF_RESNET[part]}.{rest}": tensor for (part, _, rest), tensor in parts if part in _OF_RESNET}
