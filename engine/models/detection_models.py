"""Models for detection and instance segmentation: torchvision's on any encoder, its COCO models, and model files."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, NamedTuple

from torch import nn
from torchvision import models
from torchvision.ops import FrozenBatchNorm2d

from engine.contract.job import Job
from engine.data.transforms.device_transforms import Statistics
from engine.models import encoders, pyramid_detectors, registry, weights
from engine.models.base import ModelInfo, TaskError, validate_image_size
from engine.models.model_surgery import adapt_first_conv, set_heads
from engine.models.pyramid_detectors import compute_region_samples
from engine.models.registry import build_external, build_seeded, is_external
from engine.models.tensor_detector import LoadableDetector, adapt_to_image_sizes, load_and_mark_heads
from engine.models.torchvision_detectors import convert_to_tensor_detector

CLASSES = 90
"""Number of classes with which the catalogue describes torchvision's detectors.

It is that of the published COCO models, without the background.
"""
IMAGE_SIZE = 512
"""Default side length of images in pixels for a detector from a user's Python file."""
HALF_STATISTICS: Statistics = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
SSD: Statistics = ((0.48235, 0.45882, 0.40784), (1 / 255, 1 / 255, 1 / 255))
"""Mean and standard deviation of colors in torchvision's `ssd300_vgg16`.

Its weights come from Caffe and expect colors from 0 to 255.
"""

_REGION_HEADS = ("roi_heads.box_predictor.",)
_MASK_HEADS = (*_REGION_HEADS, "roi_heads.mask_predictor.mask_fcn_logits.")
_HEADS = ("head.classification_head.cls_logits.",)
_SSD_HEADS = ("head.classification_head.",)


class _CatalogueDetector(NamedTuple):
    """Properties of a detector that are needed to list it in the catalogue and to build it."""

    title: str
    family: str
    image_size: int = 512
    min_image_size: int = 32
    statistics: Statistics = encoders.IMAGENET
    head: tuple[str, ...] = _REGION_HEADS
    """Beginnings of the names of parameters whose shape depends on the number of classes."""
    frozen_norms: bool = False
    """True if torchvision freezes the BatchNorm of the backbone when it loads pretrained weights."""
    encoder: bool = False
    """True for a model on the job's encoder, False for a model that one of torchvision's functions builds."""


_PYRAMID_SIZE = 320
"""Default image size in pixels of the detectors that are built on an encoder."""


def _describe_encoder_detector(title: str, head: tuple[str, ...]) -> _CatalogueDetector:
    """Return the properties of a detector that is built on the job's encoder.

    `title` is its name for users. The shapes of its parameters whose names start with one of `head` depend on the
    number of classes.
    """
    return _CatalogueDetector(title, title, _PYRAMID_SIZE, encoders.MIN_IMAGE_SIZE, head=head, encoder=True)


DETECTORS = {
    "fasterrcnn": _describe_encoder_detector("Faster R-CNN", _REGION_HEADS),
    "retinanet": _describe_encoder_detector("RetinaNet", _HEADS),
    "fcos": _describe_encoder_detector("FCOS", _HEADS),
    "fasterrcnn_mobilenet_v3_large_320_fpn": _CatalogueDetector(
        "Faster R-CNN, MobileNetV3 Large, 320 px", "Faster R-CNN", 320, frozen_norms=True
    ),
    "fasterrcnn_mobilenet_v3_large_fpn": _CatalogueDetector(
        "Faster R-CNN, MobileNetV3 Large", "Faster R-CNN", frozen_norms=True
    ),
    "fasterrcnn_resnet50_fpn": _CatalogueDetector("Faster R-CNN, ResNet-50", "Faster R-CNN", frozen_norms=True),
    "fasterrcnn_resnet50_fpn_v2": _CatalogueDetector("Faster R-CNN v2, ResNet-50", "Faster R-CNN"),
    "fcos_resnet50_fpn": _CatalogueDetector("FCOS, ResNet-50", "FCOS", head=_HEADS, frozen_norms=True),
    "retinanet_resnet50_fpn": _CatalogueDetector("RetinaNet, ResNet-50", "RetinaNet", head=_HEADS, frozen_norms=True),
    "retinanet_resnet50_fpn_v2": _CatalogueDetector("RetinaNet v2, ResNet-50", "RetinaNet", head=_HEADS),
    "ssd300_vgg16": _CatalogueDetector("SSD300, VGG-16", "SSD", 300, 300, SSD, _SSD_HEADS),
    "ssdlite320_mobilenet_v3_large": _CatalogueDetector(
        "SSDlite, MobileNetV3 Large", "SSD", 320, 32, HALF_STATISTICS, _SSD_HEADS
    ),
}  # fmt: skip
MASKERS = {
    "maskrcnn": _describe_encoder_detector("Mask R-CNN", _MASK_HEADS),
    "maskrcnn_resnet50_fpn": _CatalogueDetector(
        "Mask R-CNN, ResNet-50", "Mask R-CNN", head=_MASK_HEADS, frozen_norms=True
    ),
    "maskrcnn_resnet50_fpn_v2": _CatalogueDetector("Mask R-CNN v2, ResNet-50", "Mask R-CNN", head=_MASK_HEADS),
}
_ALL = DETECTORS | MASKERS
_EXTERNAL = _CatalogueDetector("", "", head=(*_MASK_HEADS, *_SSD_HEADS))
"""Properties of a detector from a library or a file, which may have the head of any of torchvision's detectors."""


def is_from_torchvision(name: str) -> bool:
    """Return True if one of torchvision's functions builds the model `name`."""
    return name in _ALL and not _ALL[name].encoder


def describe_model(name: str) -> ModelInfo:
    """Describe a model for the catalogue, without building it."""
    entry = _ALL[name]
    info = ModelInfo(entry.title, entry.family, entry.image_size, entry.min_image_size, CLASSES, encoder=entry.encoder)
    if entry.encoder:
        return info
    default = models.get_model_weights(name).DEFAULT
    return info._replace(
        weights=weights.create_torchvision_source(default), published=weights.format_published_accuracy(default)
    )


def get_image_size(job: Job) -> int:
    return registry.get_image_size(job, _ALL[job.model.name].image_size if job.model.name in _ALL else IMAGE_SIZE)


def get_statistics(job: Job) -> Statistics:
    """Return the mean and standard deviation of colors that the weights of the job's model or encoder expect."""
    if job.model.name not in _ALL:
        return registry.get_statistics(job.model.name, encoders.IMAGENET)
    entry = _ALL[job.model.name]
    return encoders.get_statistics(job.model.encoder) if entry.encoder else entry.statistics


def build(job: Job, classes: int, channels: int, size: int, entries: dict[str, _CatalogueDetector]) -> nn.Module:
    """Build the detector of a job on the CPU, in training mode. Raises TaskError.

    The model must be in `entries`. `channels` and `size` describe the images. New weights depend only on the job's
    seed.
    """
    model = build_seeded(job, entries, lambda: _construct(job, classes, channels, size))
    if isinstance(model, LoadableDetector):
        return load_and_mark_heads(model, job)
    entry = _EXTERNAL._replace(title=job.model.name) if is_external(job) else entries[job.model.name]
    initial = weights.read_initial(job, f"the encoder {job.model.encoder}" if entry.encoder else entry.title)
    if initial is not None:
        _load_initial(job, entry, model, initial, channels)
    # The feature pyramid is trained for detection, like the heads. It is part of torchvision's backbone.
    heads = [*(name for name, _ in model.named_children() if name != "backbone"), "backbone.fpn"]
    set_heads(model, heads, freeze=bool(job.model.freeze_epochs))
    return model.train()


def _construct(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build the detector of a job, without pretrained weights. Raises TaskError."""
    if is_external(job):
        return _build_external_detector(job, classes, channels, size)
    entry = _ALL[job.model.name]
    validate_image_size(entry.title, size, entry.min_image_size)
    if entry.encoder:
        plain = _construct_on_encoder(job, entry.title, classes + 1, channels, size)
    else:
        options = {"box_batch_size_per_image": compute_region_samples(size)} if "rcnn" in job.model.name else {}
        plain = models.get_model(
            job.model.name, weights=None, weights_backbone=None, num_classes=classes + 1, **options
        )
        adapt_first_conv(plain, channels)
    return convert_to_tensor_detector(plain, _get_max_detections(plain))


def _construct_on_encoder(job: Job, title: str, classes: int, channels: int, size: int) -> nn.Module:
    """Build a detector on the job's encoder with random weights. Raises TaskError."""
    constructor = partial(pyramid_detectors.construct, job.model.name, job.model.encoder, classes, channels, size)
    return encoders.construct(job, title, size, constructor)


def _get_max_detections(plain: nn.Module) -> int:
    """Return the maximum number of detections per image of `plain`, one of torchvision's detectors."""
    owner: Any = getattr(plain, "roi_heads", plain)  # an R-CNN stores it in its second stage
    return int(owner.detections_per_img)


def _build_external_detector(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    """Build a detector from transformers, a plug-in or a user's file. Raises TaskError.

    `classes` includes the background, as in torchvision.
    """
    plain = build_external(job, classes + 1, channels)
    if isinstance(plain, LoadableDetector):
        adapt_to_image_sizes(plain, job, size)
        return plain
    try:
        return convert_to_tensor_detector(plain, _get_max_detections(plain))
    except AttributeError as error:
        message = f"The model of {job.model.name} lacks the structure of torchvision's detectors ({error})."
        remedy = "Return a model of torchvision.models.detection from build_model, with its `backbone` and `transform`."
        raise TaskError("model", message, remedy) from error


def _load_initial(
    job: Job, entry: _CatalogueDetector, model: nn.Module, initial: weights.InitialWeights, channels: int
) -> None:
    """Load the initial weights of a detector, which belong to the full model or to its encoder alone. Raises TaskError.

    The layers that depend on the classes are loaded only if all of them fit. `entry` has the properties of the model,
    and `channels` is its number of image channels.
    """
    if entry.encoder and not any(name.startswith("backbone.") for name in initial.state):
        encoders.load_weights(model.get_submodule("backbone.body"), job.model.encoder, initial, channels)
        return
    state = to_current_names(initial.state, retinanet=entry.family == "RetinaNet")
    current = model.state_dict()
    heads = [name for name in current if name.startswith(entry.head)]
    if any(name not in state or state[name].shape != current[name].shape for name in heads):
        state |= {name: current[name] for name in heads}
    weights.load(model, initial._replace(state=state), head=None, channels=channels)
    if entry.frozen_norms:  # as in torchvision with pretrained weights
        _freeze_norms(model.get_submodule("backbone.body"))


_RENAMED_PATTERNS = (
    (r"(backbone\.fpn\.(?:inner|layer)_blocks\.\d+)\.(weight|bias)", r"\1.0.\2"),
    (r"rpn\.head\.conv\.(weight|bias)", r"rpn.head.conv.0.0.\1"),
)


def to_current_names(state: weights.State, *, retinanet: bool) -> weights.State:
    """Rename the weights of a detector from older versions of torchvision to the names in the installed version.

    Some of torchvision's weight files still have the old names, which its modules rename in `_load_from_state_dict`.
    `retinanet` is True if the detector is a RetinaNet, whose heads have other old names.
    """
    renamed = {}
    for name, tensor in state.items():
        for pattern, replacement in _RENAMED_PATTERNS:
            name = re.sub(f"^{pattern}$", replacement, name)  # noqa: PLW2901
        mask_layer = re.fullmatch(r"roi_heads\.mask_head\.mask_fcn(\d+)\.(weight|bias)", name)
        if mask_layer:
            number, leaf = mask_layer.groups()
            name = f"roi_heads.mask_head.{int(number) - 1}.0.{leaf}"  # noqa: PLW2901 - numbers began with 1
        head_layer = re.fullmatch(r"(head\.\w+_head\.conv)\.(\d+)\.(weight|bias)", name) if retinanet else None
        if head_layer:
            head, number, leaf = head_layer.groups()
            name = f"{head}.{int(number) // 2}.0.{leaf}"  # noqa: PLW2901 - activations had numbers, too
        renamed[name] = tensor
    return renamed


def _freeze_norms(body: nn.Module) -> None:
    """Replace each BatchNorm2d in `body`, in place, with a FrozenBatchNorm2d that has the same values and names."""
    for name, norm in list(body.named_modules()):
        if isinstance(norm, nn.BatchNorm2d):
            frozen = FrozenBatchNorm2d(norm.num_features, norm.eps)
            frozen.load_state_dict(norm.state_dict())
            parent, _, leaf = name.rpartition(".")
            setattr(body.get_submodule(parent), leaf, frozen)
