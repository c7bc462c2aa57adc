"""Models for semantic segmentation: torchvision's models, and segmentation_models_pytorch's decoders on any encoder."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torchvision import models

from engine.contract.job import Job
from engine.models import encoders, user_file, weights
from engine.models.base import ModelInfo
from engine.models.model_surgery import adapt_first_conv, find_head
from engine.models.registry import build_external, build_seeded, is_external, mark_heads
from engine.models.tensor_detector import LoadableDetector, adapt_to_image_sizes, load_and_mark_heads
from engine.system.format import counted

CLASSES = 21
"""Number of classes with which the catalogue describes torchvision's segmentation models.

It is that of PASCAL VOC, the dataset of their published weights.
"""
IMAGE_SIZE = 512
"""Default image size in pixels.

torchvision's weights were trained at 520 px, but few decoders accept this size with encoders that halve it five times.
"""
_TORCHVISION = {
    "deeplabv3_mobilenet_v3_large": ("DeepLabV3, MobileNetV3 Large", "DeepLab"),
    "deeplabv3_resnet50": ("DeepLabV3, ResNet-50", "DeepLab"),
    "deeplabv3_resnet101": ("DeepLabV3, ResNet-101", "DeepLab"),
    "fcn_resnet50": ("FCN, ResNet-50", "FCN"),
    "fcn_resnet101": ("FCN, ResNet-101", "FCN"),
    "lraspp_mobilenet_v3_large": ("LR-ASPP, MobileNetV3 Large", "LR-ASPP"),
}
_DECODERS = {
    "unet": ("U-Net", "U-Net"),
    "unetplusplus": ("U-Net++", "U-Net"),
    "manet": ("MA-Net", "U-Net"),
    "linknet": ("LinkNet", "LinkNet"),
    "fpn": ("FPN", "Pyramids"),
    "pspnet": ("PSPNet", "Pyramids"),
    "pan": ("PAN", "Pyramids"),
    "upernet": ("UPerNet", "Pyramids"),
    "deeplabv3plus": ("DeepLabV3+", "DeepLab"),
    "segformer": ("SegFormer", "Transformers"),
}
"""Title and family of each decoder, by its name in segmentation_models_pytorch.

DeepLabV3 is left out, since torchvision has it, too. DPT is left out, since it needs particular encoders.
"""


ON_ENCODER = frozenset(_DECODERS)


def list_names() -> tuple[str, ...]:
    return (*_DECODERS, *_TORCHVISION)


def describe_model(name: str) -> ModelInfo:
    """Describe a model for the catalogue, without building it."""
    title, family = (_DECODERS | _TORCHVISION)[name]
    if name in _DECODERS:
        return ModelInfo(title, family, IMAGE_SIZE, encoders.MIN_IMAGE_SIZE, CLASSES, encoder=True)
    default = models.get_model_weights(name).DEFAULT
    source, published = weights.create_torchvision_source(default), weights.format_published_accuracy(default)
    return ModelInfo(title, family, IMAGE_SIZE, encoders.STRIDE, CLASSES, weights=source, published=published)


def build(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job on the CPU, in training mode. Raises TaskError.

    It maps images [n, channels, s, s] to scores [n, classes, s, s]. New weights depend only on the job's seed.
    """
    model = build_seeded(job, list_names(), lambda: _construct(job, classes, channels, size))
    if isinstance(model, LoadableDetector):
        return load_and_mark_heads(model, job)
    has_decoder = job.model.name in _DECODERS
    head = "segmentation_head" if has_decoder else find_head(model, classes)
    title = job.model.name if is_external(job) else _get_title(job)
    encoders.load_initial(job, model, head, channels, title=title, has_encoder=has_decoder)
    heads = [head] if head else []
    if has_decoder:  # only the encoder has pretrained weights
        heads = [name for name, _ in model.named_children() if name != "encoder"]
    mark_heads(job, model, heads, job.model.name, classes)
    return model.train()


def _construct(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the model of a job, without pretrained weights, and check its output if it is a user's model.

    Raises TaskError.
    """
    if job.model.name in _DECODERS:
        return _construct_decoder(job, classes, channels, size)
    if not is_external(job):
        return _construct_torchvision(job, classes, channels)
    model = build_external(job, classes, channels)
    if isinstance(model, LoadableDetector):
        adapt_to_image_sizes(model, job, size)
        return model
    remedy = f"Make it return {counted(classes, 'value')} per pixel."
    user_file.try_out(job.model.name, model, torch.zeros(2, channels, size, size), (classes, size, size), remedy)
    return model


def _construct_decoder(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build a decoder of segmentation_models_pytorch on the job's encoder. Raises TaskError."""
    from segmentation_models_pytorch import create_model

    arguments = {"encoder_weights": None, "in_channels": channels, "classes": classes}
    constructor = partial(create_model, job.model.name, job.model.encoder, **arguments)
    return encoders.construct(job, _get_title(job), size, constructor)


def _construct_torchvision(job: Job, classes: int, channels: int) -> nn.Module:
    """Build a model of torchvision without its auxiliary head. The names of its parameters stay the same.

    In contrast to torchvision, it returns a single tensor.
    """
    plain = models.get_model(job.model.name, weights=None, weights_backbone=None, num_classes=classes)
    plain_class = type(plain)

    def forward(self: nn.Module, inputs: Tensor) -> Tensor:
        outputs: dict[str, Tensor] = plain_class.forward(self, inputs)
        return outputs["out"]

    plain.__class__ = type(plain_class.__name__, (plain_class,), {"forward": forward})
    adapt_first_conv(plain, channels)
    model: nn.Module = plain
    return model


def _get_title(job: Job) -> str:
    return describe_model(job.model.name).title
