"""Classification models from torchvision, with their names, sizes and construction."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from torch import nn
from torchvision import models
from torchvision.models import WeightsEnum

from engine.data.transforms.device_transforms import Statistics

_TITLES = (
    (r"alexnet", "AlexNet", "AlexNet"),
    (r"convnext_(\w+)", "ConvNeXt-{1}", "ConvNeXt"),
    (r"densenet(\d+)", "DenseNet-{1}", "DenseNet"),
    (r"efficientnet_(b\d)", "EfficientNet-{1}", "EfficientNet"),
    (r"efficientnet_v2_(\w)", "EfficientNetV2-{1}", "EfficientNet"),
    (r"googlenet", "GoogLeNet", "Inception"),
    (r"inception_v3", "Inception v3", "Inception"),
    (r"maxvit_(t)", "MaxViT-{1}", "MaxViT"),
    (r"mnasnet(\d)_(\d+)", "MNASNet {1}.{2}", "MNASNet"),
    (r"mobilenet_v2", "MobileNetV2", "MobileNet"),
    (r"mobilenet_v3_(\w+)", "MobileNetV3 {1}", "MobileNet"),
    (r"regnet_([xy])_(\d+)_(\d)(gf)", "RegNet{1} {2}.{3} {4}", "RegNet"),
    (r"regnet_([xy])_(\d+)([mg]f)", "RegNet{1} {2} {3}", "RegNet"),
    (r"resnet(\d+)", "ResNet-{1}", "ResNet"),
    (r"resnext(\d+)_(\w+)", "ResNeXt-{1} {2}", "ResNet"),
    (r"wide_resnet(\d+)_2", "Wide ResNet-{1}-2", "ResNet"),
    (r"shufflenet_v2_x(\d)_(\d)", "ShuffleNetV2 x{1}.{2}", "ShuffleNet"),
    (r"squeezenet(\d)_(\d)", "SqueezeNet {1}.{2}", "SqueezeNet"),
    (r"swin_(\w)", "Swin-{1}", "Swin"),
    (r"swin_v2_(\w)", "Swin V2-{1}", "Swin"),
    (r"vgg(\d+)", "VGG-{1}", "VGG"),
    (r"vgg(\d+)_bn", "VGG-{1} BN", "VGG"),
    (r"vit_(\w)_(\d+)", "ViT-{1}/{2}", "ViT"),
)

PATCH_SIZES = {"vit_b_16": 16, "vit_b_32": 32, "vit_h_14": 14, "vit_l_16": 16, "vit_l_32": 32}
"""Patch sizes of vision transformers in pixels.

Such a model is built for one image size, which must be a multiple of the patch size.
"""

INCEPTION_FAMILY = frozenset({"googlenet", "inception_v3"})
"""Models that have auxiliary heads in torchvision.

They are built without these, so that they return plain logits in training, too.
"""

_WITHOUT_CLASSIFIER = frozenset({"IMAGENET1K_FEATURES"})
"""Names of weights without a classifier, which are made for other tasks."""


@lru_cache(maxsize=1)
def list_names() -> tuple[str, ...]:
    """Return the names of all classification models in torchvision."""
    return tuple(models.list_models(module=models))


def get_title_and_family(name: str) -> tuple[str, str]:
    """Return the title and family of a torchvision model, or its id and "Other" if Footplate's list lacks it."""
    for pattern, title, family in _TITLES:
        match = re.fullmatch(pattern, name)
        if match:
            return title.format(name, *map(_format_title_part, match.groups())), family
    return name, "Other"


def _format_title_part(text: str) -> str:
    """Format a part of a model's name for its title.

    Words are capitalized. Single letters and sizes become upper case, except for the x in sizes such as "32x8d".
    """
    if "x" in text and len(text) > 1:
        return text
    return text.capitalize() if text.isalpha() and len(text) > 2 else text.upper()


def list_pretrained_weights(name: str) -> tuple[WeightsEnum, ...]:
    """Return the pretrained weights of a model in torchvision, the default first."""
    pretrained = models.get_model_weights(name)
    default = pretrained.DEFAULT if "DEFAULT" in pretrained.__members__ else None
    others = [each for each in pretrained if each is not default and each.name not in _WITHOUT_CLASSIFIER]
    return (default, *others) if default is not None else tuple(others)


def get_image_size(name: str) -> int:
    """Return the image size at which the model's default weights were evaluated, or 224 if it has no weights."""
    pretrained = list_pretrained_weights(name)
    return int(pretrained[0].transforms.keywords["crop_size"]) if pretrained else 224


def get_min_image_size(name: str) -> int:
    """Return the minimum image size in pixels.

    It is one patch for a vision transformer, and for other models the minimum that the weights state, or 1 without
    weights. The weights of Swin state their training size instead, but these models pad smaller images. Their minimum
    is the stride of the last feature map.
    """
    if name in PATCH_SIZES:
        return PATCH_SIZES[name]
    if name.startswith("swin_"):
        return 32  # patches of 4 px, merged three times
    pretrained = list_pretrained_weights(name)
    return max(pretrained[0].meta["min_size"]) if pretrained else 1


def get_statistics(name: str) -> Statistics | None:
    """Return the mean and standard deviation of the colors that the default weights were trained with.

    Returns None if there are no weights.
    """
    if name in INCEPTION_FAMILY:
        # torchvision normalizes with the statistics of ImageNet and converts the result to this in the model
        # (`transform_input`), but not if the model is built without pretrained weights.
        return (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    pretrained = list_pretrained_weights(name)
    if not pretrained:
        return None
    transforms = pretrained[0].transforms()
    return tuple(transforms.mean), tuple(transforms.std)


def create_arguments(name: str, classes: int, size: int) -> dict[str, Any]:
    """Return the arguments of torchvision's builder for a model with these `classes` and images of `size` px."""
    options: dict[str, Any] = {"num_classes": classes}
    if name in INCEPTION_FAMILY:
        options["aux_logits"] = False
    if name in PATCH_SIZES:
        options["image_size"] = size
    return options


def construct(name: str, options: dict[str, Any]) -> nn.Module:
    """Construct a torchvision model with random weights, with the arguments `options` for torchvision's builder."""
    if name in INCEPTION_FAMILY:
        options = {**options, "init_weights": True}
    model: nn.Module = models.get_model(name, weights=None, **options)
    return model
