"""Table of the models from the transformers library that Footplate offers.

transformers is not imported until a model is built. The configurations are those of the published checkpoints, so that
these can be loaded.
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
"""Mean and standard deviation that leave colors unchanged, from 0 to 1.

D-FINE, RT-DETR and DEIMv2 with HGNetV2 expect such colors.
"""


def build_detector(kind: str, config: dict[str, Any], classes: int, channels: int) -> nn.Module:
    """Build a detector with random weights. It has no output for the background, which `classes` includes.

    `kind` is the prefix of the model's classes in transformers, such as "DFine", and `config` has the arguments of its
    configuration.
    """
    from engine.models.hugging_face.construction import construct

    return construct(kind, config, classes - 1, channels)


def build_segmenter(kind: str, config: dict[str, Any], classes: int, channels: int) -> nn.Module:
    """Build a model for semantic segmentation with random weights.

    The arguments are those of `build_detector`, but `classes` does not include a background.
    """
    from engine.models.hugging_face.construction import construct

    return construct(kind, config, classes, channels)


def _configure_hgnet(
    channels: tuple[int, ...], inner: tuple[int, ...], depth: tuple[int, ...], layers: int, **overrides: Any
) -> Any:
    """Return the configuration of an HGNetV2 backbone.

    Args:
        channels: Channels of the stem before and after its last layer, followed by those of the three or four stages.
        inner: Channels inside each stage.
        depth: Number of blocks in each stage.
        layers: Number of layers in each block.
        overrides: Additional fields of the configuration.
    """
    stem_channels, first_stage_channels, *stages = channels
    stage_count = len(stages)
    return {
        "model_type": "hgnet_v2",
        "embedding_size": 32,
        "hidden_sizes": stages,
        "stem_channels": [3, stem_channels, first_stage_channels],
        "stage_in_channels": [first_stage_channels, *stages[:-1]],
        "stage_mid_channels": list(inner),
        "stage_out_channels": stages,
        "stage_num_blocks": list(depth),
        "depths": list(depth),
        "stage_downsample": [False, True, True, True][:stage_count],
        "stage_light_block": [False, False, True, True][:stage_count],
        "stage_kernel_size": [3, 3, 5, 5][:stage_count],
        "stage_numb_of_layers": [layers] * stage_count,
        "out_indices": [2, 3, 4],
        **overrides,
    }


_B0 = _configure_hgnet(
    (16, 16, 64, 256, 512, 1024), (16, 32, 64, 128), (1, 1, 2, 1), 3, use_learnable_affine_block=True
)
_B2 = _configure_hgnet(
    (24, 32, 96, 384, 768, 1536), (32, 64, 128, 256), (1, 1, 3, 1), 4, use_learnable_affine_block=True
)
_B4 = _configure_hgnet((32, 48, 128, 512, 1024, 2048), (48, 96, 192, 384), (1, 1, 3, 1), 6)
_B5 = _configure_hgnet((32, 64, 128, 512, 1024, 2048), (64, 128, 256, 512), (1, 2, 5, 2), 6)
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
_DECODER_POINTS = {"decoder_n_points": [3, 6, 3]}
_SMALL = {
    "backbone_config": _B0,
    "encoder_in_channels": [256, 512, 1024],
    "decoder_layers": 3,
    "hidden_expansion": 0.5,
    "depth_mult": 0.34,
    **_DECODER_POINTS,
}
_MEDIUM = {
    "backbone_config": _B2,
    "encoder_in_channels": [384, 768, 1536],
    "decoder_layers": 4,
    "depth_mult": 0.67,
    **_DECODER_POINTS,
}
_EXTRA_LARGE = {
    "backbone_config": _B5,
    "encoder_hidden_dim": 384,
    "encoder_ffn_dim": 2048,
    "decoder_in_channels": [384, 384, 384],
    "reg_scale": 8.0,
    **_DECODER_POINTS,
}


_DEIM_NANO = _NANO | {"decoder_activation_function": "silu"}


def _configure_small_deimv2(
    width: int, last_channels: int, blocks: int, queries: int, feedforward: int, **backbone: Any
) -> dict[str, Any]:
    """Return the configuration of a small DEIMv2, which uses the last of three stages of a pruned HGNetV2.

    These models are trained without the losses for distributions, and without matches that all layers share.

    Args:
        width: Channels of the encoder and decoder.
        last_channels: Channels of the last stage.
        blocks: Number of blocks in the last stage.
        queries: Number of queries.
        feedforward: Channels inside the decoder's layers.
        backbone: Additional fields of the backbone's configuration.
    """
    backbone_fields = {"use_learnable_affine_block": True, "out_indices": [3]} | backbone
    return {
        "backbone_config": _configure_hgnet(
            (16, 16, 64, 256, last_channels), (16, 32, 64), (1, 1, blocks), 3, **backbone_fields
        ),
        "encoder_type": "lite",
        "encoder_layers": 0,
        "encode_proj_layers": [],
        "encoder_in_channels": [last_channels],
        "encoder_hidden_dim": width,
        "feat_strides": [16, 32],
        "hidden_expansion": 0.34,
        "depth_mult": 0.5,
        "d_model": width,
        "num_queries": queries,
        "decoder_in_channels": [width, width],
        "decoder_ffn_dim": feedforward,
        "decoder_layers": 3,
        "decoder_n_points": [4, 2],
        "decoder_activation_function": "silu",
        "num_feature_levels": 2,
        "share_bbox_head": True,
        "use_gateway": False,
        "use_dense_one_to_one": False,
        "weight_loss_fgl": 0.0,
        "weight_loss_ddf": 0.0,
    }


def _configure_resnet(layer: str, widths: tuple[int, ...], depths: tuple[int, ...]) -> dict[str, Any]:
    """Return the configuration of a ResNet-vd whose blocks are of type `layer`.

    `widths` and `depths` are the number of channels and of blocks in each stage.
    """
    fields = {"layer_type": layer, "hidden_sizes": list(widths), "depths": list(depths)}
    return {"model_type": "rt_detr_resnet", "out_indices": [2, 3, 4], **fields}


_R18 = {
    "backbone_config": _configure_resnet("basic", (64, 128, 256, 512), (2, 2, 2, 2)),
    "encoder_in_channels": [128, 256, 512],
    "decoder_layers": 3,
    "hidden_expansion": 0.5,
}
_R50 = {"backbone_config": _configure_resnet("bottleneck", (256, 512, 1024, 2048), (3, 4, 6, 3))}


def _configure_rf_detr(image_size: int, decoder_layers: int, **backbone: Any) -> dict[str, Any]:
    """Return the configuration of an RF-DETR on DINOv2-S.

    `backbone` has additional fields of the backbone's configuration. The decoder has no dropout, as in the package
    rfdetr (`ModelDefaults`). The default of transformers is 0.1.
    """
    return {
        "backbone_config": {
            "model_type": "rf_detr_dinov2",
            "hidden_size": 384,
            "num_attention_heads": 6,
            "image_size": image_size,
            "patch_size": 16,
            "num_windows": 2,
            "out_features": ["stage3", "stage6", "stage9", "stage12"],
        }
        | backbone,
        "decoder_layers": decoder_layers,
        "decoder_n_points": 2,
        "dropout": 0.0,
    }


def _describe_model(kind: str, title: str, config: dict[str, Any], repository: str = "", **overrides: Any) -> Model:
    """Return the description of a model from transformers, by default a detector.

    Args:
        kind: Key in `KINDS` of `construction`.
        title: Name of the model for users.
        config: Arguments of its configuration in transformers.
        repository: Repository with its weights on the Hugging Face Hub, or "" if there are none.
        overrides: Fields of `Model` that differ from those of most detectors, and the `license` or `revision` of the
            weights.
    """
    license, revision = overrides.pop("license", "apache-2.0"), overrides.pop("revision", "main")
    source = Weights(repository=repository, path=CHECKPOINT, license=license, revision=revision)
    fields: dict[str, Any] = {
        "task": "detection",
        "build": partial(build_segmenter if kind.endswith("Pixels") else build_detector, kind, config),
        "family": title.rpartition("-")[0],
        "image_size": 640,
        "min_image_size": 64,
        "statistics": UNCHANGED,
        "weights": source if repository else None,
        "extra": EXTRA,
    }
    return Model(title=title, **fields | overrides)


def _describe_d_fine(letter: str, config: dict[str, Any], size: str, average_precision: float) -> Model:
    """Return the description of a D-FINE, whose weights have an average precision of `average_precision` on COCO.

    The size of the model is given by its `letter` in the title, such as "N", and in the repository's name by `size`,
    such as "nano". `config` has the arguments of its configuration.
    """
    published = f"COCO {average_precision} AP, D-FINE paper"
    return _describe_model(
        "DFine", f"D-FINE-{letter}", config, f"ustc-community/dfine-{size}-coco", published=published
    )


def _describe_rt_detr(depth: int, config: dict[str, Any], average_precision: float) -> Model:
    """Return the description of an RT-DETRv2 on a ResNet of this `depth`, such as 50.

    `average_precision` is that of its weights on COCO, and `config` has the arguments of its configuration.
    """
    published = f"COCO {average_precision} AP, RT-DETRv2 README"
    return _describe_model(
        "RTDetrV2", f"RT-DETRv2-R{depth}", config, f"PekingU/rtdetr_v2_r{depth}vd", published=published
    )


def _describe_rf_detr(
    size: str, image_size: int, decoder_layers: int, average_precision: float, source: str = "paper"
) -> Model:
    """Return the description of an RF-DETR of a `size` such as "nano".

    `average_precision` is that of its weights on COCO, as stated in RF-DETR's `source` ("paper" or "documentation").
    """
    published = f"COCO {average_precision} AP, RF-DETR {source}"
    title, repository = f"RF-DETR-{size.capitalize()}", f"Roboflow/rf-detr-{size}"
    overrides = {"image_size": image_size, "statistics": None, "published": published}
    return _describe_model("RfDetr", title, _configure_rf_detr(image_size, decoder_layers), repository, **overrides)


def _describe_rf_detr_with_masks(
    size: str, image_size: int, decoder_layers: int, queries: int, average_precision: float
) -> Model:
    """Return the description of an RF-DETR for instance segmentation, of the `size` "nano" to "xxlarge".

    `average_precision` is that of its masks on COCO.
    """
    config = _configure_rf_detr(image_size, decoder_layers, patch_size=12, num_windows=1 if size == "nano" else 2)
    return _describe_model(
        "RfDetrMasks",
        f"RF-DETR Seg-{size.capitalize().replace('Xxl', '2XL').replace('Xl', 'XL')}",
        config | {"num_queries": queries},
        f"Roboflow/rf-detr-seg-{size}",
        task="instance_segmentation",
        image_size=image_size,
        statistics=None,
        published=f"COCO {average_precision} mask AP, RF-DETR documentation",
    )


def _describe_segmenter(
    library: str,
    title: str,
    config: dict[str, Any],
    repository: str,
    published: str,
    *,
    semantic: bool,
    **overrides: Any,
) -> Model:
    """Return the description of a model from transformers for semantic or instance segmentation.

    Args:
        library: "Mask2Former" or "Eomt".
        title: Name of the model for users.
        config: Arguments of its configuration in transformers.
        repository: Repository with its weights on the Hugging Face Hub.
        published: Accuracy of the weights and the name of the model zoo that states it.
        semantic: True for semantic segmentation, False for instance segmentation.
        overrides: Additional fields of the model or of its weights.
    """
    overrides |= {"task": "segmentation", "own_loss": True} if semantic else {"task": "instance_segmentation"}
    kind, title = (f"{library}Pixels", f"{title}, semantic") if semantic else (f"{library}Instances", title)
    return _describe_model(
        kind, title, config, repository, published=f"{published} model zoo", statistics=None, **overrides
    )


def _describe_mask2former(size: str, blocks: int, dataset: str, accuracy: str, **overrides: Any) -> Model:
    """Return the description of a Mask2Former on a Swin with `blocks` blocks in its third stage.

    `size` is the size of the Swin, such as "tiny". `dataset` is the part of the repository's name that states the
    dataset and the task of the weights, and `accuracy` is their published accuracy. `overrides` has additional fields
    of the model.
    """
    config = {
        "backbone_config": {
            "model_type": "swin",
            "depths": [2, 2, blocks, 2],
            "drop_path_rate": 0.3,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
        }
    }
    overrides |= {"family": "Mask2Former", "license": "cc-by-nc-4.0", "semantic": dataset == "ade-semantic"}
    title, repository = f"Mask2Former-Swin-{size[0].upper()}", f"facebook/mask2former-swin-{size}-{dataset}"
    return _describe_segmenter("Mask2Former", title, config, repository, f"{accuracy}, Mask2Former", **overrides)


_EOMT: dict[str, dict[str, Any]] = {
    "S": {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "num_blocks": 3},
    "B": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_blocks": 3},
    "L": {},
}


def _describe_eomt(
    letter: str, repository: str, accuracy: str, *, semantic: bool = False, image_size: int = 640, **config_fields: Any
) -> Model:
    """Return the description of an EoMT, whose size is the `letter` of its DINOv2: "S", "B" or "L".

    Args:
        letter: Size of DINOv2.
        repository: Name of its repository on the Hugging Face Hub, without the owner.
        accuracy: Published accuracy of the weights, as text.
        semantic: True for semantic segmentation, False for instance segmentation.
        image_size: Side length of the images that the weights were trained with, in pixels.
        config_fields: Additional fields of its configuration.
    """
    config = _EOMT[letter] | {"layerscale_value": 1e-5, "image_size": image_size} | config_fields
    overrides: dict[str, Any] = {"license": "mit", "semantic": semantic, "image_size": image_size}
    return _describe_segmenter(
        "Eomt", f"EoMT-{letter}", config, f"tue-mps/{repository}", f"{accuracy}, EoMT", **overrides
    )


DETECTORS: dict[str, Model] = {
    "dfine_n": _describe_d_fine("N", _NANO, "nano", 42.8),
    "dfine_s": _describe_d_fine("S", _SMALL, "small", 48.5),
    "dfine_m": _describe_d_fine("M", _MEDIUM, "medium", 52.3),
    "dfine_l": _describe_d_fine("L", {"backbone_config": _B4, **_DECODER_POINTS}, "large", 54.0),
    "dfine_x": _describe_d_fine("X", _EXTRA_LARGE, "xlarge", 55.8),
    "rtdetrv2_r18": _describe_rt_detr(18, _R18, 48.1),
    "rtdetrv2_r50": _describe_rt_detr(50, _R50, 53.4),
    # transformers' documentation names this conversion of the authors' weights; there is none of the smaller models.
    "deimv2_n": _describe_model(
        "Deimv2",
        "DEIMv2-N",
        _DEIM_NANO,
        "harshaljanjani/DEIMv2_HGNetv2_N_COCO_Transformers",
        published="COCO 43.0 AP, DEIMv2 README",
    ),
    "deimv2_pico": _describe_model("Deimv2", "DEIMv2-Pico", _configure_small_deimv2(112, 512, 2, 200, 320)),
    "deimv2_femto": _describe_model(
        "Deimv2", "DEIMv2-Femto", _configure_small_deimv2(96, 512, 1, 150, 256), image_size=416
    ),
    "deimv2_atto": _describe_model(
        "Deimv2",
        "DEIMv2-Atto",
        _configure_small_deimv2(64, 256, 1, 100, 160, stage_kernel_size=[3, 3, 3]),
        image_size=320,
    ),
    "rfdetr_nano": _describe_rf_detr("nano", 384, 2, 48.4),
    "rfdetr_small": _describe_rf_detr("small", 512, 3, 53.0),
    "rfdetr_medium": _describe_rf_detr("medium", 576, 4, 54.7),
    "rfdetr_large": _describe_rf_detr("large", 704, 4, 56.5, "documentation"),
}
SEGMENTERS: dict[str, Model] = {
    "rfdetr_seg_nano": _describe_rf_detr_with_masks("nano", 312, 4, 100, 40.3),
    "rfdetr_seg_small": _describe_rf_detr_with_masks("small", 384, 4, 100, 43.1),
    "rfdetr_seg_medium": _describe_rf_detr_with_masks("medium", 432, 5, 200, 45.3),
    "rfdetr_seg_large": _describe_rf_detr_with_masks("large", 504, 5, 300, 47.1),
    "rfdetr_seg_xlarge": _describe_rf_detr_with_masks("xlarge", 624, 6, 300, 48.8),
    "rfdetr_seg_xxlarge": _describe_rf_detr_with_masks("xxlarge", 768, 6, 300, 49.9),
    "mask2former_swin_t": _describe_mask2former("tiny", 6, "coco-instance", "COCO 45.0 mask AP"),
    # The main branch of this repository has the weights only as a pickle.
    "mask2former_swin_t_semantic": _describe_mask2former(
        "tiny", 6, "ade-semantic", "ADE20K 47.7 mIoU", image_size=512, revision="refs/pr/2"
    ),
    "mask2former_swin_s": _describe_mask2former("small", 18, "coco-instance", "COCO 46.3 mask AP"),
    "mask2former_swin_s_semantic": _describe_mask2former(
        "small", 18, "ade-semantic", "ADE20K 51.3 mIoU", image_size=512
    ),
    # The only weights of the two smaller models are those of panoptic segmentation.
    "eomt_s": _describe_eomt("S", "coco_panoptic_eomt_small_640_2x", "COCO 46.7 PQ"),
    "eomt_s_semantic": _describe_eomt("S", "coco_panoptic_eomt_small_640_2x", "COCO 46.7 PQ", semantic=True),
    "eomt_b": _describe_eomt("B", "coco_panoptic_eomt_base_640_2x", "COCO 51.6 PQ"),
    "eomt_b_semantic": _describe_eomt("B", "coco_panoptic_eomt_base_640_2x", "COCO 51.6 PQ", semantic=True),
    "eomt_l": _describe_eomt("L", "coco_instance_eomt_large_640", "COCO 45.2 mask AP"),
    "eomt_l_semantic": _describe_eomt(
        "L", "ade20k_semantic_eomt_large_512", "ADE20K 58.4 mIoU", semantic=True, image_size=512, num_queries=100
    ),
}
MODELS: dict[str, Model] = DETECTORS | SEGMENTERS
