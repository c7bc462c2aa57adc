"""The models of detection and of instance segmentation: torchvision's, and the user's own with its interface."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torchvision import models
from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import FrozenBatchNorm2d

from engine.contract.catalogue import did_you_mean
from engine.contract.job import Job
from engine.data.transforms.device_transforms import Statistics
from engine.models import registry, weights
from engine.models.base import ModelInfo, TaskError
from engine.models.model_surgery import adapt_first_conv, set_heads
from engine.models.registry import build_foreign, is_foreign
from engine.models.torchvision_detectors import tensors_alone

CLASSES = 90
"""torchvision's are described as they ship: for COCO's numbers of classes, with background as a further one."""
IMAGE_SIZE = 512
"""The default image size for a model file."""
LIGHT = 128
"""The channels of the feature pyramid of the light models."""
IMAGENET: Statistics = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALVES: Statistics = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
SSD: Statistics = ((0.48235, 0.45882, 0.40784), (1 / 255, 1 / 255, 1 / 255))
"""As in torchvision's `ssd300_vgg16`, whose weights come from Caffe and expect colours of 0 to 255."""


class _Known(NamedTuple):
    title: str
    family: str
    image_size: int = 512
    min_image_size: int = 32
    statistics: Statistics = IMAGENET
    head: tuple[str, ...] = ("roi_heads.box_predictor.",)
    """Parameters whose shape depends on the number of classes."""
    frozen_norms: bool = False
    """Whether torchvision builds the backbone with frozen BatchNorm when it has pretrained weights."""
    construct: Callable[..., nn.Module] | None = None
    """The builder, for a model that torchvision has no function for."""


_HEADS = ("head.classification_head.cls_logits.",)
_SSD_HEADS = ("head.classification_head.",)
_MASK_HEADS = ("roi_heads.box_predictor.", "roi_heads.mask_predictor.mask_fcn_logits.")


GROUPS = 8
"""The groups of GroupNorm in the light models; the channels of all their layers are a multiple of it."""


def _light(num_classes: int, size: int, *, masks: bool) -> nn.Module:
    """torchvision's Faster or Mask R-CNN of narrower parts, which learns from nothing on a CPU.

    MobileNetV3's pyramid has ResNet's four levels, of strides 4 to 32, and 128 channels in place of 256; the heads
    are as much narrower. It normalises by groups of channels (Wu & He 2018), as detectors that learn from nothing
    with few images in a batch should (He et al. 2019, Rethinking ImageNet pre-training, section 3.1): with BatchNorm
    its average precision fell back to 0 after some epochs. Boxes begin with sides from a thirty-second to half of the
    image's, so that small objects are found in small images, too.
    """
    levels = {"2": 24, "4": 40, "7": 80, "16": 960}
    names = {name: str(index) for index, name in enumerate(levels)}
    body = models.mobilenet_v3_large(weights=None, norm_layer=partial(nn.GroupNorm, GROUPS)).features
    backbone = BackboneWithFPN(body, names, list(levels.values()), LIGHT)
    parts: dict[str, Any] = {
        "rpn_anchor_generator": AnchorGenerator(
            tuple((size // part,) for part in (32, 16, 8, 4, 2)), ((0.5, 1.0, 2.0),) * 5
        ),
        "box_head": TwoMLPHead(LIGHT * 7 * 7, 2 * LIGHT),
        "box_predictor": FastRCNNPredictor(2 * LIGHT, num_classes),
        **_sampling(size),
    }
    if not masks:
        return FasterRCNN(backbone, **parts)
    mask_parts = {
        "mask_head": MaskRCNNHeads(LIGHT, (LIGHT, LIGHT), 1),
        "mask_predictor": MaskRCNNPredictor(LIGHT, LIGHT, num_classes),
    }
    return MaskRCNN(backbone, **parts, **mask_parts)


DETECTORS = {
    "fasterrcnn_mobilenet_light": _Known(
        "Faster R-CNN, MobileNetV3 Large, light", "Faster R-CNN", 256, 64, construct=partial(_light, masks=False)
    ),
    "fasterrcnn_mobilenet_v3_large_320_fpn": _Known(
        "Faster R-CNN, MobileNetV3 Large, 320 px", "Faster R-CNN", 320, frozen_norms=True
    ),
    "fasterrcnn_mobilenet_v3_large_fpn": _Known(
        "Faster R-CNN, MobileNetV3 Large", "Faster R-CNN", frozen_norms=True
    ),
    "fasterrcnn_resnet50_fpn": _Known("Faster R-CNN, ResNet-50", "Faster R-CNN", frozen_norms=True),
    "fasterrcnn_resnet50_fpn_v2": _Known("Faster R-CNN v2, ResNet-50", "Faster R-CNN"),
    "fcos_resnet50_fpn": _Known("FCOS, ResNet-50", "FCOS", head=_HEADS, frozen_norms=True),
    "retinanet_resnet50_fpn": _Known("RetinaNet, ResNet-50", "RetinaNet", head=_HEADS, frozen_norms=True),
    "retinanet_resnet50_fpn_v2": _Known("RetinaNet v2, ResNet-50", "RetinaNet", head=_HEADS),
    "ssd300_vgg16": _Known("SSD300, VGG-16", "SSD", 300, 300, SSD, _SSD_HEADS),
    "ssdlite320_mobilenet_v3_large": _Known(
        "SSDlite, MobileNetV3 Large", "SSD", 320, 32, HALVES, _SSD_HEADS
    ),
}  # fmt: skip
MASKERS = {
    "maskrcnn_mobilenet_light": _Known(
        "Mask R-CNN, MobileNetV3 Large, light",
        "Mask R-CNN",
        256,
        64,
        head=_MASK_HEADS,
        construct=partial(_light, masks=True),
    ),
    "maskrcnn_resnet50_fpn": _Known("Mask R-CNN, ResNet-50", "Mask R-CNN", head=_MASK_HEADS, frozen_norms=True),
    "maskrcnn_resnet50_fpn_v2": _Known("Mask R-CNN v2, ResNet-50", "Mask R-CNN", head=_MASK_HEADS),
}
_ALL = DETECTORS | MASKERS


def model_info(name: str) -> ModelInfo:
    known = _ALL[name]
    given = None
    if known.construct is None:
        given = weights.of_torchvision(models.get_model_weights(name).DEFAULT)
    return ModelInfo(known.title, known.family, known.image_size, known.min_image_size, CLASSES, weights=given)


def image_size(job: Job) -> int:
    return registry.image_size(job, _ALL[job.model].image_size if job.model in _ALL else IMAGE_SIZE)


def statistics(model: str) -> Statistics:
    return _ALL[model].statistics if model in _ALL else registry.statistics(model, IMAGENET)


def build(job: Job, classes: int, channels: int, size: int, known: dict[str, _Known]) -> nn.Module:
    """The job's model, one of `known`, on the CPU, in training mode. Its fresh weights depend on the job's seed alone.

    Raises TaskError.
    """
    if not is_foreign(job) and job.model not in known:
        raise TaskError("model", f"There is no model “{job.model}”.", did_you_mean(job.model, list(known)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        model = _construct(job, classes, channels, size)
    if is_foreign(job):
        return model.train()
    entry = known[job.model]
    if job.weights_file:
        state = weights.from_file(job.weights_file)
        _load(model, state, entry, channels=channels, field="weights_file", source=job.weights_file)
    elif job.pretrained:
        state = weights.pretrained(job, entry.title)
        _load(model, state, entry, channels=channels, field="pretrained", source=weights.SOURCE)
    if entry.frozen_norms and (job.weights_file or job.pretrained):
        _freeze_norms(model.get_submodule("backbone.body"))
    heads = [*(name for name, _ in model.named_children() if name != "backbone"), "backbone.fpn"]
    set_heads(model, heads, freeze=bool(job.freeze_epochs))
    return model.train()


def _construct(job: Job, classes: int, channels: int, size: int) -> nn.Module:
    if is_foreign(job):
        return _own(job, classes, channels)
    entry = _ALL[job.model]
    if size < entry.min_image_size:
        message = f"{entry.title} needs images of at least {entry.min_image_size} px."
        raise TaskError("image_size", message, f"Set {entry.min_image_size} or more, or leave it empty.")
    if entry.construct is not None:
        plain = entry.construct(classes + 1, size)
    else:
        more = _sampling(size) if "rcnn" in job.model else {}
        plain = models.get_model(job.model, weights=None, weights_backbone=None, num_classes=classes + 1, **more)
    adapt_first_conv(plain, channels)
    return tensors_alone(plain, _most(plain))


def _sampling(size: int) -> dict[str, Any]:
    """How many proposals of an image an R-CNN learns from: 512, as its authors found for sides of 800 px, go down with
    the image's area to 64."""
    return {"box_batch_size_per_image": min(512, max(64, 512 * size**2 // 800**2))}


def _most(plain: nn.Module) -> int:
    """The detections of an image that a detector gives at most."""
    holder: Any = getattr(plain, "roi_heads", plain)
    return int(holder.detections_per_img)


def _own(job: Job, classes: int, channels: int) -> nn.Module:
    """Whose function is told the number of classes with background, as torchvision's are."""
    try:
        plain = build_foreign(job, classes + 1, channels)
        return tensors_alone(plain, _most(plain))
    except AttributeError as error:
        message = f"The model of {job.model} lacks the structure of torchvision's detectors ({error})."
        remedy = "Return a model of torchvision.models.detection from build_model, with its `backbone` and `transform`."
        raise TaskError("model", message, remedy) from error


def _load(model: nn.Module, state: weights.State, entry: _Known, *, channels: int, field: str, source: str) -> None:
    """Puts `state` into the model; what there is for each class is taken over where all of it fits."""
    state = todays_names(state, retinanet=entry.family == "RetinaNet")
    own = model.state_dict()
    heads = [name for name in own if name.startswith(entry.head)]
    if any(name not in state or state[name].shape != own[name].shape for name in heads):
        state |= {name: own[name] for name in heads}
    weights.load(model, state, head=None, channels=channels, field=field, source=source)


_RENAMED = (
    (r"(backbone\.fpn\.(?:inner|layer)_blocks\.\d+)\.(weight|bias)", r"\1.0.\2"),
    (r"rpn\.head\.conv\.(weight|bias)", r"rpn.head.conv.0.0.\1"),
)


def todays_names(state: weights.State, *, retinanet: bool) -> weights.State:
    """The weights of a detector by the names that torchvision gives them today, which its own files partly precede: as
    the `_load_from_state_dict` of its modules do."""
    renamed = {}
    for name, tensor in state.items():
        for pattern, replacement in _RENAMED:
            name = re.sub(f"^{pattern}$", replacement, name)  # noqa: PLW2901
        mask = re.fullmatch(r"roi_heads\.mask_head\.mask_fcn(\d+)\.(weight|bias)", name)
        if mask:
            name = f"roi_heads.mask_head.{int(mask[1]) - 1}.0.{mask[2]}"  # noqa: PLW2901
        conv = re.fullmatch(r"(head\.\w+_head\.conv)\.(\d+)\.(weight|bias)", name) if retinanet else None
        if conv:
            name = f"{conv[1]}.{int(conv[2]) // 2}.0.{conv[3]}"  # noqa: PLW2901
        renamed[name] = tensor
    return renamed


def _freeze_norms(body: nn.Module) -> None:
    """Puts a FrozenBatchNorm2d, with the same values under the same names, where there is a BatchNorm2d."""
    for name, norm in list(body.named_modules()):
        if isinstance(norm, nn.BatchNorm2d):
            frozen = FrozenBatchNorm2d(norm.num_features, norm.eps)
            frozen.load_state_dict(norm.state_dict())
            parent, _, leaf = name.rpartition(".")
            setattr(body.get_submodule(parent), leaf, frozen)
