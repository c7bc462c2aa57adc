"""Models of transformers that Footplate offers, as a table. Nothing of transformers is imported until one is built.

The configurations are those of the published checkpoints, so that these can be loaded.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from engine.contract.weights import Weights
from engine.data.transforms.device_transforms import Statistics
from engine.models.base import Model

EXTRA = "transformers"
CHECKPOINT = "model.safetensors"
UNCHANGED: Statistics = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Colors from 0 to 1, as D-FINE, RT-DETR and DEIMv2 with HGNetV2 expect them."""


def build_detector(kind: str, config: dict[str, Any], classes: int, channels: int) -> nn.Module:
    """Build a detector with random weights for `classes` including the background, which it has no output for.

    Args:
        kind: Prefix of the classes of transformers, as "DFine".
        config: Arguments of the configuration.
        classes: Number of classes with the background.
        channels: Channels of the images.
    """
    from engine.models.hugging_face.detectors import construct

    return construct(kind, config, classes - 1, channels)


def _hgnet(channels: tuple[int, ...], inner: tuple[int, ...], depth: tuple[int, ...], layers: int, **more: Any) -> Any:
    """Return the configuration of an HGNetV2.

    Args:
        channels: Channels of the stem, before and after its last layer, and of the four stages.
        inner: Channels inside the stages.
        depth: Blocks of the stages.
        layers: Layers of a block.
        more: Further fields.
    """
    before, after, *stages = channels
    return {
        "model_type": "hgnet_v2",
        "embedding_size": 32,
        "hidden_sizes": stages,
        "stem_channels": [3, before, after],
        "stage_in_channels": [after, *stages[:-1]],
        "stage_mid_channels": list(inner),
        "stage_out_channels": stages,
        "stage_num_blocks": list(depth),
        "stage_downsample": [False, True, True, True],
        "stage_light_block": [False, False, True, True],
        "stage_kernel_size": [3, 3, 5, 5],
        "stage_numb_of_layers": [layers] * 4,
        "out_indices": [2, 3, 4],
        **more,
    }


_B0 = _hgnet((16, 16, 64, 256, 512, 1024), (16, 32, 64, 128), (1, 1, 2, 1), 3, use_learnable_affine_block=True)
_B2 = _hgnet((24, 32, 96, 384, 768, 1536), (32, 64, 128, 256), (1, 1, 3, 1), 4, use_learnable_affine_block=True)
_B4 = _hgnet((32, 48, 128, 512, 1024, 2048), (48, 96, 192, 384), (1, 1, 3, 1), 6)
_B5 = _hgnet((32, 64, 128, 512, 1024, 2048), (64, 128, 256, 512), (1, 2, 5, 2), 6)
_NANO = {
    "backbone_config": _B0 | {"out_indices": [3, 4]},
    "encoder_in_channels": [512, 1024],
    "encoder_hidden_dim": 128,
    "encoder_ffn_dim": 512,
    "encode_proj_layers": [1],
    "feat_strides": [16, 32],
    "d_model": 128,
    "decoder_in_channels": [128, 128],
    "decoder_ffn_dim": 512,
    "decoder_layers": 3,
    "decoder_n_points": [6, 6],
    "num_feature_levels": 2,
    "hidden_expansion": 0.34,
    "depth_mult": 0.5,
}
_POINTS = {"decoder_n_points": [3, 6, 3]}
_SMALL = {
    "backbone_config": _B0,
    "encoder_in_channels": [256, 512, 1024],
    "decoder_layers": 3,
    "hidden_expansion": 0.5,
    "depth_mult": 0.34,
    **_POINTS,
}
_MEDIUM = {
    "backbone_config": _B2,
    "encoder_in_channels": [384, 768, 1536],
    "decoder_layers": 4,
    "depth_mult": 0.67,
    **_POINTS,
}
_EXTRA_LARGE = {
    "backbone_config": _B5,
    "encoder_hidden_dim": 384,
    "encoder_ffn_dim": 2048,
    "decoder_in_channels": [384, 384, 384],
    "reg_scale": 8.0,
    **_POINTS,
}


def _resnet(layer: str, widths: tuple[int, ...], depths: tuple[int, ...]) -> dict[str, Any]:
    """Return the configuration of a ResNet-vd with blocks of this kind of `layer`."""
    named = {"layer_type": layer, "hidden_sizes": list(widths), "depths": list(depths)}
    return {"model_type": "rt_detr_resnet", "out_indices": [2, 3, 4], **named}


_R18 = {
    "backbone_config": _resnet("basic", (64, 128, 256, 512), (2, 2, 2, 2)),
    "encoder_in_channels": [128, 256, 512],
    "decoder_layers": 3,
    "hidden_expansion": 0.5,
}
_R50 = {"backbone_config": _resnet("bottleneck", (256, 512, 1024, 2048), (3, 4, 6, 3))}


def _windowed(image_size: int, decoder_layers: int) -> dict[str, Any]:
    """Return the configuration of an RF-DETR on DINOv2-S."""
    return {
        "backbone_config": {
            "model_type": "rf_detr_dinov2",
            "hidden_size": 384,
            "num_attention_heads": 6,
            "image_size": image_size,
            "patch_size": 16,
            "num_windows": 2,
            "out_features": ["stage3", "stage6", "stage9", "stage12"],
        },
        "decoder_layers": decoder_layers,
        "decoder_n_points": 2,
    }


def _detector(
    kind: str, title: str, config: dict[str, Any], repository: str, *, published: str, image_size: int = 640
) -> Model:
    """Return a detector of the table, on images of `image_size` px."""
    return Model(
        title=title,
        task="detection",
        build=partial(build_detector, kind, config),
        family=title.rpartition("-")[0],
        image_size=image_size,
        min_image_size=64,
        statistics=None if kind == "RfDetr" else UNCHANGED,
        weights=Weights(repository=repository, path=CHECKPOINT, licence="apache-2.0"),
        loss_per="object",
        extra=EXTRA,
        published=published,
    )


def _d_fine(letter: str, config: dict[str, Any], size: str, average_precision: float) -> Model:
    published = f"COCO {average_precision} AP, D-FINE paper"
    return _detector("DFine", f"D-FINE-{letter}", config, f"ustc-community/dfine-{size}-coco", published=published)


def _rt_detr(depth: int, config: dict[str, Any], average_precision: float) -> Model:
    published = f"COCO {average_precision} AP, RT-DETRv2 README"
    return _detector("RTDetrV2", f"RT-DETRv2-R{depth}", config, f"PekingU/rtdetr_v2_r{depth}vd", published=published)


def _rf_detr(size: str, image_size: int, decoder_layers: int, average_precision: float | None) -> Model:
    published = f"COCO {average_precision} AP, RF-DETR paper" if average_precision else ""
    title, repository = f"RF-DETR-{size.capitalize()}", f"Roboflow/rf-detr-{size}"
    config = _windowed(image_size, decoder_layers)
    return _detector("RfDetr", title, config, repository, published=published, image_size=image_size)


DETECTORS: dict[str, Model] = {
    "dfine_n": _d_fine("N", _NANO, "nano", 42.8),
    "dfine_s": _d_fine("S", _SMALL, "small", 48.5),
    "dfine_m": _d_fine("M", _MEDIUM, "medium", 52.3),
    "dfine_l": _d_fine("L", {"backbone_config": _B4, **_POINTS}, "large", 54.0),
    "dfine_x": _d_fine("X", _EXTRA_LARGE, "xlarge", 55.8),
    "rtdetrv2_r18": _rt_detr(18, _R18, 48.1),
    "rtdetrv2_r50": _rt_detr(50, _R50, 53.4),
    "rfdetr_nano": _rf_detr("nano", 384, 2, 48.4),
    "rfdetr_small": _rf_detr("small", 512, 3, 53.0),
    "rfdetr_medium": _rf_detr("medium", 576, 4, 54.7),
    "rfdetr_large": _rf_detr("large", 704, 4, None),
}
MODELS: dict[str, Model] = DETECTORS
