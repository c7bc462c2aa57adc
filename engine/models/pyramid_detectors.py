"""Detectors of torchvision on a feature pyramid, which is built on any encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torchvision.models.detection import FCOS, FasterRCNN, MaskRCNN, RetinaNet
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign
from torchvision.ops.feature_pyramid_network import ExtraFPNBlock, LastLevelMaxPool, LastLevelP6P7

from engine.data.transforms.device_transforms import fit_statistics
from engine.models import encoders

CHANNELS = 128
"""Number of channels in the pyramid and the heads.

It is half of torchvision's number, because these detectors should also run on a CPU.
"""
BOX_FEATURES = 256
PROPOSALS = 300
"""Number of proposals per image in evaluation, as in Ren et al. 2015 (Faster R-CNN, section 4)."""
TRAINING_PROPOSALS = 1000
"""Number of proposals per image in training, both before and after non-maximum suppression.

It is half of torchvision's number, since fewer proposals are sampled.
"""
ASPECT_RATIOS = (0.5, 1.0, 2.0)
OCTAVE = (1.0, 2 ** (1 / 3), 2 ** (2 / 3))
"""Sizes of RetinaNet's anchors in a pyramid level, as multiples of the first (Lin et al. 2017, section 4)."""
HALF_OCTAVE = (1.0, 2**0.5)
MIN_ANCHOR_SIZE = 2.0
"""Minimum square root of an anchor's area in pixels.

torchvision rounds half the length of each side, and the result must not be 0.
"""


class EncoderWithFPN(nn.Module):
    """Encoder with a feature pyramid.

    The pyramid uses the encoder's features from stride `finest_stride` on, and `extra_blocks` adds coarser levels.
    Images [n, c, h, w] result in a dict of features [n, CHANNELS, h / stride, w / stride], the finest first.
    """

    def __init__(self, encoder: str, channels: int, *, finest_stride: int, extra_blocks: ExtraFPNBlock) -> None:
        from segmentation_models_pytorch.encoders import get_encoder

        super().__init__()
        self.body: nn.Module = get_encoder(encoder, in_channels=channels, weights=None)
        self.out_channels = CHANNELS
        self._first_level = finest_stride.bit_length() - 1  # features of stride 2**i are at position i
        widths: Any = self.body.out_channels
        self.fpn = FeaturePyramidNetwork(list(widths[self._first_level :]), CHANNELS, extra_blocks)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features = self.body(images)[self._first_level :]
        pyramid: dict[str, Tensor] = self.fpn({str(level): each for level, each in enumerate(features)})
        return pyramid


def construct(kind: str, encoder: str, classes: int, channels: int, size: int) -> nn.Module:
    """Build the detector `kind` of `KINDS` with random weights, as torchvision does.

    The encoder is from segmentation_models_pytorch or, with the prefix "tu-", from timm. `classes` includes the
    background. The anchors are scaled in proportion to `size`, the side of the images in pixels. Raises ValueError,
    KeyError or RuntimeError if the encoder has no features at some of the strides.
    """
    mean, std = fit_statistics(encoders.get_statistics(encoder), channels)
    transform = {"min_size": size, "max_size": size, "image_mean": mean, "image_std": std}
    return KINDS[kind](encoder, classes, channels, size, **transform)


def compute_region_samples(size: int) -> int:
    """Compute the number of proposals per image that an R-CNN is trained on.

    At a `size` of 800 px, this is torchvision's default of 512. For smaller images, it shrinks in proportion to the
    area, but never below 128.
    """
    return min(512, max(128, 512 * size**2 // 800**2))


def _build_faster_rcnn(encoder: str, classes: int, channels: int, size: int, **transform: Any) -> nn.Module:
    backbone = EncoderWithFPN(encoder, channels, finest_stride=8, extra_blocks=LastLevelMaxPool())
    return FasterRCNN(backbone, **_create_region_arguments(classes, size, finest_stride=8, levels=4), **transform)


def _build_mask_rcnn(encoder: str, classes: int, channels: int, size: int, **transform: Any) -> nn.Module:
    """Build a Mask R-CNN, with `transform` as arguments for its transform of images.

    Its pyramid begins at stride 4, since masks of small objects need this resolution.
    """
    backbone = EncoderWithFPN(encoder, channels, finest_stride=4, extra_blocks=LastLevelMaxPool())
    return MaskRCNN(
        backbone,
        **_create_region_arguments(classes, size, finest_stride=4, levels=5),
        mask_head=MaskRCNNHeads(CHANNELS, (CHANNELS, CHANNELS), 1),
        mask_predictor=MaskRCNNPredictor(CHANNELS, CHANNELS, classes),
        **transform,
    )


def _create_region_arguments(classes: int, size: int, *, finest_stride: int, levels: int) -> dict[str, Any]:
    """Create the constructor arguments that Faster R-CNN and Mask R-CNN have in common.

    The pyramid has `levels` levels. The first has the stride `finest_stride`, and `size` is the side of the images.
    """
    poolers = [str(level) for level in range(levels - 1)]  # the last level is used only for proposals
    return {
        "rpn_anchor_generator": _create_anchor_generator(size, HALF_OCTAVE, finest_stride=finest_stride, levels=levels),
        "rpn_pre_nms_top_n_train": TRAINING_PROPOSALS,
        "rpn_post_nms_top_n_train": TRAINING_PROPOSALS,
        "rpn_post_nms_top_n_test": PROPOSALS,
        "box_roi_pool": MultiScaleRoIAlign(poolers, output_size=7, sampling_ratio=2),
        "box_head": TwoMLPHead(CHANNELS * 7 * 7, BOX_FEATURES),
        "box_predictor": FastRCNNPredictor(BOX_FEATURES, classes),
        "box_batch_size_per_image": compute_region_samples(size),
    }


def _build_retinanet(encoder: str, classes: int, channels: int, size: int, **transform: Any) -> nn.Module:
    extra_blocks = LastLevelP6P7(CHANNELS, CHANNELS)
    backbone = EncoderWithFPN(encoder, channels, finest_stride=8, extra_blocks=extra_blocks)
    anchor_generator = _create_anchor_generator(size, OCTAVE, finest_stride=8, levels=5)
    return RetinaNet(backbone, classes, anchor_generator=anchor_generator, **transform)


def _build_fcos(encoder: str, classes: int, channels: int, size: int, **transform: Any) -> nn.Module:
    extra_blocks = LastLevelP6P7(CHANNELS, CHANNELS)
    return FCOS(EncoderWithFPN(encoder, channels, finest_stride=8, extra_blocks=extra_blocks), classes, **transform)


def _create_anchor_generator(
    size: int, scales: tuple[float, ...], *, finest_stride: int, levels: int
) -> AnchorGenerator:
    """Create a generator of anchors whose size is proportional to `size`, the side of the images in pixels.

    The pyramid has `levels` levels, the first with the stride `finest_stride`. The smallest anchor's side is 4 times
    the stride of its level for images of 800 px, and 1.6 times for 320 px. Each level has anchors of this side times
    each of `scales`.
    """
    sides = [max(MIN_ANCHOR_SIZE, finest_stride * 2**level * size / 200) for level in range(levels)]
    sizes = tuple(tuple(side * scale for scale in scales) for side in sides)
    return AnchorGenerator(sizes, (ASPECT_RATIOS,) * levels)


KINDS: dict[str, Callable[..., nn.Module]] = {
    "fasterrcnn": _build_faster_rcnn,
    "retinanet": _build_retinanet,
    "fcos": _build_fcos,
    "maskrcnn": _build_mask_rcnn,
}
