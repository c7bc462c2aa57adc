"""Construction of models from the library transformers."""

from __future__ import annotations

import copy
import sys
from typing import Any, NamedTuple

import transformers
from torch import Tensor, nn

from engine.models.hugging_face.detectors import HubDetector, HubMasker
from engine.models.hugging_face.segmenters import (
    InstanceSegmenter,
    LossByImage,
    MatcherByImage,
    PixelSegmenter,
    save_probabilities,
)
from engine.models.model_surgery import adapt_first_conv


class _Kind(NamedTuple):
    """Facts about a kind of models in transformers.

    Attributes:
        library: Name of the model's class in transformers.
        adapter: Mixin that adapts the class to Footplate's interface.
        losses: Kinds of losses. The loss of a kind is the sum over the decoder's layers and the denoising queries.
        backbone: Names of the modules that make up the backbone.
        pyramid: Name of the module that computes feature maps, or "".
        stride: Number that the sides of images must be a multiple of. With 0, it is the patch size times the number of
            windows.
    """

    library: str
    adapter: type[nn.Module]
    losses: tuple[str, ...]
    backbone: tuple[str, ...] = ("model.backbone",)
    pyramid: str = ""
    stride: int = 32


_BOX_LOSSES = ("bbox", "giou")
_DISTRIBUTION_LOSSES = (*_BOX_LOSSES, "fgl", "ddf")
_RF_BACKBONE = ("model.backbone.backbone",)
_MASK_LOSSES = ("cross_entropy", "mask", "dice")
_SWIN_BACKBONE = ("model.pixel_level_module.encoder",)
_VIT_BACKBONE = ("embeddings", "layers")
KINDS = {
    "DFine": _Kind("DFineForObjectDetection", HubDetector, ("vfl", *_DISTRIBUTION_LOSSES)),
    "RTDetrV2": _Kind("RTDetrV2ForObjectDetection", HubDetector, ("vfl", *_BOX_LOSSES)),
    "Deimv2": _Kind("Deimv2ForObjectDetection", HubDetector, ("mal", *_DISTRIBUTION_LOSSES), ("model.conv_encoder.model",)),
    "RfDetr": _Kind("RfDetrForObjectDetection", HubDetector, ("ce", *_BOX_LOSSES), _RF_BACKBONE, stride=0),
    "RfDetrMasks": _Kind(
        "RfDetrForInstanceSegmentation", HubMasker, ("ce", *_BOX_LOSSES, "mask_ce", "mask_dice"),
        ("model.model.backbone.backbone",), stride=0,
    ),
    "Mask2FormerInstances": _Kind("Mask2FormerForUniversalSegmentation", InstanceSegmenter, _MASK_LOSSES, _SWIN_BACKBONE),
    "Mask2FormerPixels": _Kind("Mask2FormerForUniversalSegmentation", PixelSegmenter, _MASK_LOSSES, _SWIN_BACKBONE),
    "EomtInstances": _Kind("EomtForUniversalSegmentation", InstanceSegmenter, _MASK_LOSSES, _VIT_BACKBONE, "upscale_block", 16),
    "EomtPixels": _Kind("EomtForUniversalSegmentation", PixelSegmenter, _MASK_LOSSES, _VIT_BACKBONE, "upscale_block", 16),
}  # fmt: skip


def construct(kind: str, config: dict[str, Any], classes: int, channels: int) -> nn.Module:
    """Build a model from transformers with random weights.

    `kind` is a key in `KINDS`, and `config` has the arguments of its configuration. The classes of the model, its loss
    and its matcher are replaced by subclasses with Footplate's mixins. In the module of transformers that defines the
    model, `len` is replaced by a function that can be exported.
    """
    facts = KINDS[kind]
    plain_class = getattr(transformers, facts.library)
    _replace_len(plain_class)
    built_config = plain_class.config_class(num_labels=classes, **copy.deepcopy(config))
    if hasattr(built_config, "freeze_backbone_batch_norms"):
        built_config.freeze_backbone_batch_norms = False  # the job decides
    plain = plain_class(built_config)
    attributes = {
        "library_class": plain_class,
        "loss_names": facts.losses,
        "max_detections": built_config.num_queries,
        "stride": facts.stride or built_config.backbone_config.patch_size * built_config.backbone_config.num_windows,
        "channels": channels,
        "heads": _find_modules_outside(facts.backbone, plain),
        "pyramid": facts.pyramid or facts.backbone[0],
    }
    # The adapter's methods take precedence over those of the library's class.
    plain.__class__ = type(plain_class.__name__, (facts.adapter, plain_class), attributes)
    if hasattr(plain, "criterion"):
        _compute_losses_by_image(plain.criterion)
        plain.register_load_state_dict_post_hook(save_probabilities)
        save_probabilities(plain)
    if channels != 3:
        adapt_first_conv(plain, channels)
        # Modules that compare the number of channels of their inputs with this number.
        for module in plain.modules():
            if getattr(module, "num_channels", None) == 3:
                module.num_channels = channels
    model: nn.Module = plain
    return model


def _replace_len(plain_class: type) -> None:
    """Replace `len` by `_get_length` in all code of the module that defines `plain_class`.

    `len` of a tensor is a constant in exported files, so that they would only accept batches of one size.
    """
    vars(sys.modules[plain_class.__module__])["len"] = _get_length


def _compute_losses_by_image(criterion: Any) -> None:
    """Replace the classes of a loss module and its matcher by subclasses that process each image alone."""
    for module, mixin in ((criterion, LossByImage), (criterion.matcher, MatcherByImage)):
        module.__class__ = type(type(module).__name__, (mixin, type(module)), {})


def _get_length(values: Any) -> Any:
    """Return the length of `values`. In contrast to `len`, torch.export does not make it a constant for a tensor."""
    return values.shape[0] if isinstance(values, Tensor) else len(values)


def _find_modules_outside(backbone: tuple[str, ...], model: nn.Module, parent: str = "") -> tuple[str, ...]:
    """Return the names of the modules that together hold all layers outside the backbone.

    `backbone` has the names of the backbone's modules. `parent` is the dotted path of `model` in the recursion.
    """
    names: list[str] = []
    for name, child in model.named_children():
        path = f"{parent}.{name}".lstrip(".")
        if any(backbone_module.startswith(f"{path}.") for backbone_module in backbone):
            names += _find_modules_outside(backbone, child, path)
        elif path not in backbone:
            names.append(path)
    return tuple(names)
