"""Tiny transformers models, registered like the models of a plug-in package."""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from engine.models.base import Model
from engine.models.hugging_face.variants import UNCHANGED, build_detector, build_segmenter
from engine.system import plugins
from tests.support.installed import install

NEEDS_TRANSFORMERS = pytest.mark.skipif(find_spec("transformers") is None, reason="needs footplate[transformers]")
"""Mark of tests that need the package, without importing it while tests are collected, which takes a second."""
INSTALL = f"{__name__}:register_tiny_models"
"""Value for `prepare` of workers that train the tiny models."""

_HGNET = {
    "model_type": "hgnet_v2",
    "embedding_size": 8,
    "hidden_sizes": [16, 32, 64, 64],
    "stem_channels": [3, 8, 8],
    "stage_in_channels": [8, 16, 32, 64],
    "stage_mid_channels": [8, 8, 16, 16],
    "stage_out_channels": [16, 32, 64, 64],
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_downsample": [False, True, True, True],
    "stage_light_block": [False, False, True, True],
    "stage_kernel_size": [3, 3, 3, 3],
    "stage_numb_of_layers": [1, 1, 1, 1],
    "use_learnable_affine_block": True,
    "out_indices": [2, 3, 4],
}
_HYBRID = {
    "encoder_in_channels": [32, 64, 64],
    "encoder_hidden_dim": 32,
    "encoder_ffn_dim": 32,
    "encoder_attention_heads": 4,
    "d_model": 32,
    "decoder_in_channels": [32, 32, 32],
    "decoder_ffn_dim": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "num_queries": 30,
    "num_denoising": 10,
    "hidden_expansion": 0.5,
}
_RESNET = {
    "model_type": "rt_detr_resnet",
    "layer_type": "basic",
    "embedding_size": 16,
    "hidden_sizes": [16, 32, 64, 64],
    "depths": [1, 1, 1, 1],
    "out_indices": [2, 3, 4],
}
VIT = {
    "model_type": "rf_detr_dinov2",
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "image_size": 128,
    "patch_size": 16,
    "num_windows": 2,
    "out_features": ["stage2", "stage4"],
}
_GROUPS = {
    "decoder_layers": 2,
    "decoder_n_points": 2,
    "decoder_ffn_dim": 64,
    "d_model": 32,
    "decoder_self_attention_heads": 4,
    "decoder_cross_attention_heads": 4,
    "num_queries": 30,
    "group_detr": 3,
    "dropout": 0.0,
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny_dfine": ("DFine", {"backbone_config": _HGNET, "depth_mult": 0.34, "decoder_n_points": [2, 2, 2], **_HYBRID}),
    "tiny_rtdetrv2": ("RTDetrV2", {"backbone_config": _RESNET, **_HYBRID}),
    "tiny_rfdetr": ("RfDetr", {"backbone_config": VIT, **_GROUPS}),
    "tiny_deimv2": (
        "Deimv2",
        {"backbone_config": _HGNET, "depth_mult": 0.34, "decoder_n_points": [2, 2, 2], **_HYBRID},
    ),
}
"""Detection models: the builder's name for the architecture, and values of its configuration, by model id."""
_SWIN = {
    "model_type": "swin",
    "embed_dim": 16,
    "depths": [1, 2, 1, 1],  # with two blocks, windows are shifted
    "num_heads": [1, 2, 4, 4],
    "window_size": 7,  # feature maps are padded to its multiples
    "drop_path_rate": 0.0,
    "out_features": ["stage1", "stage2", "stage3", "stage4"],
}
_POINTS = {"num_queries": 12, "train_num_points": 256}
_MASK2FORMER = {
    "backbone_config": _SWIN,
    "feature_size": 32,
    "mask_feature_size": 32,
    "hidden_dim": 32,
    "encoder_feedforward_dim": 32,
    "dim_feedforward": 32,
    "encoder_layers": 1,
    "decoder_layers": 3,
    "num_attention_heads": 4,
    **_POINTS,
}
_EOMT = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_blocks": 2,
    "num_attention_heads": 3,
    "image_size": 128,
    "layerscale_value": 1e-5,
    **_POINTS,
}
MASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny_rfdetr_masks": ("RfDetrMasks", {"backbone_config": VIT, **_GROUPS}),
    "tiny_mask2former": ("Mask2FormerInstances", _MASK2FORMER),
    "tiny_eomt": ("EomtInstances", _EOMT),
}
"""Instance segmentation models, in the form of `CONFIGS`."""
PIXELS: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny_mask2former_pixels": ("Mask2FormerPixels", _MASK2FORMER),
    "tiny_eomt_pixels": ("EomtPixels", _EOMT),
}
"""Semantic segmentation models, in the form of `CONFIGS`."""
ALL = CONFIGS | MASKS | PIXELS


def make_tiny_model(name: str, **changed: Any) -> Model:
    """Make the tiny model `name`, a key of `ALL`. `changed` replaces values of its configuration."""
    kind, config = ALL[name]
    build = partial(build_segmenter if name in PIXELS else build_detector, kind, config | changed)
    task = "detection" if name in CONFIGS else "instance_segmentation" if name in MASKS else "segmentation"
    return Model(name, task, build, image_size=128, statistics=UNCHANGED, own_loss=name in PIXELS, extra="transformers")


TINY: dict[str, Model] = {name: make_tiny_model(name) for name in ALL} | {
    # Training uses no random numbers.
    "still_rtdetrv2": make_tiny_model("tiny_rtdetrv2", num_denoising=0),
    "still_rfdetr": make_tiny_model("tiny_rfdetr", group_detr=1),
    "still_rfdetr_masks": make_tiny_model("tiny_rfdetr_masks", group_detr=1),
}
globals().update({name.upper(): model for name, model in TINY.items()})  # entry points name attributes


def register_tiny_models(_spec: Any = None) -> None:
    """Register the tiny models in this process through the entry points of a temporary package."""
    folder = Path(tempfile.mkdtemp(prefix="hub-models-"))
    install(folder, "hub-models", {"footplate.models": {name: f"{__name__}:{name.upper()}" for name in TINY}})
    sys.path.append(str(folder))
    plugins.fingerprint.cache_clear()
