"""torchvision's detectors with one tensor in and one tensor out, the interface that strategies expect.

In training a detector computes its loss. In evaluation it returns a fixed number of detections for each image.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from engine.data.decoding.masks import NO_CLASS

BOX = 6
"""Number of values of a detection: x1, y1, x2, y2 in pixels, score and class."""
MASK_SIDE = 28
"""Side of Mask R-CNN's masks, which are relative to their box (He et al. 2017, figure 4)."""
NONE = -1
"""Class of padding among true boxes, and score of padding among detections."""

Detections = list[dict[str, Tensor]]
"""Targets or results of torchvision's detectors, per image: "boxes" [k, 4], "labels" [k] from 1 up, and optionally
"masks".
"""


class Instances(NamedTuple):
    """Objects in one image.

    Attributes:
        boxes: Boxes around their pixels, [k, 4].
        classes: Classes, [k].
        ignored: True for ignored objects, bool [k].
        masks: Pixels, bool [k, h, w].
    """

    boxes: Tensor
    classes: Tensor
    ignored: Tensor
    masks: Tensor


def instances(planes: Tensor) -> Instances:
    """Return the objects in planes, int64 [2, h, w]: the number of each pixel's object, or 0, and its class.

    An object without a class is ignored.
    """
    numbers, classes = planes
    present = numbers.unique()
    masks = numbers == present[present > 0][:, None, None]
    rows, columns = masks.any(2).byte(), masks.any(1).byte()
    height, width = numbers.shape
    sides = (columns.argmax(1), rows.argmax(1), width - columns.flip(1).argmax(1), height - rows.flip(1).argmax(1))
    labels = torch.where(masks, classes, 0).amax((1, 2)) if len(masks) else classes.new_empty(0)
    return Instances(torch.stack(sides, 1).float(), labels, labels == NO_CLASS, masks)


def box_targets(targets: Tensor) -> Detections:
    """Convert targets [n, m, 6] (x1, y1, x2, y2 in pixels, class, ignored) to torchvision's targets.

    Ignored objects are left out, as in torchvision's training (references/detection).
    """
    converted = []
    for target in targets:
        is_used = (target[:, 4] >= 0) & (target[:, 5] == 0) & (target[:, 2:4] > target[:, :2]).all(1)
        converted.append({"boxes": target[is_used, :4], "labels": target[is_used, 4].long() + 1})
    return converted


def instance_targets(targets: Tensor) -> Detections:
    """Convert planes, int64 [n, 2, h, w], to torchvision's targets, like `box_targets`."""
    converted = []
    for planes in targets:
        found = instances(planes)
        is_used = ~found.ignored
        masks = found.masks[is_used].byte()
        converted.append({"boxes": found.boxes[is_used], "labels": found.classes[is_used] + 1, "masks": masks})
    return converted


class _TensorDetector(nn.Module):
    """Mixin for torchvision's detectors, which precedes them in the list of base classes.

    It accepts images [n, c, h, w], and targets in training. In training, it returns the loss of each image [n], which
    is for all images the same sum of the detector's losses over the batch. In evaluation, it returns the detections [n,
    k, 6 or 6 + 28 * 28].
    """

    max_detections: int
    """Maximum number of detections in each image."""

    def forward(self, inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        if not isinstance(inputs, Tensor):
            raise TypeError("the boxes that it processes depend on the image")
        if self.training:
            if targets is None:
                raise ValueError("A detector needs images and targets for training.")
            converted = instance_targets(targets) if targets.dim() == 4 else box_targets(targets)
            losses = super().forward(inputs, converted)
            return torch.stack(list(losses.values())).sum().expand(len(inputs))
        return _join(self.detections(inputs), self.max_detections, inputs)

    def detections(self, inputs: Tensor) -> Detections:
        """Return each image's detections in torchvision's format.

        "scores" [k] have gradients if those are enabled.
        """
        found: Detections = super().forward(inputs)
        return found


@torch.no_grad()
def _join(found: Detections, max_detections: int, inputs: Tensor) -> Tensor:
    """Join the detections of each image into one tensor, padded to `max_detections`."""
    width = BOX + (MASK_SIDE**2 if any("masks" in each for each in found) else 0)
    joined = inputs.new_zeros((len(found), max_detections, width), dtype=torch.float32)
    joined[..., 4] = NONE
    for row, each in zip(joined, found, strict=True):
        columns = [each["boxes"], each["scores"][:, None], each["labels"][:, None] - 1]
        if "masks" in each:
            columns.append(each["masks"].flatten(1))
        row[: len(each["boxes"])] = torch.cat([column.float() for column in columns], 1)
    return joined


class _PreparedImages(GeneralizedRCNNTransform):
    """Transform for images that are already normalized and resized.

    It pads them at the right and bottom like torchvision's; masks stay in their boxes.
    """

    def forward(self, images: Tensor, targets: Detections | None = None) -> tuple[ImageList, Detections | None]:
        height, width = images.shape[-2:]
        below, right = (-side % self.size_divisible for side in (height, width))
        return ImageList(functional.pad(images, (0, right, 0, below)), [(height, width)] * len(images)), targets

    def postprocess(self, result: Detections, image_shapes: Any, original_image_sizes: Any) -> Detections:
        return result


def use_tensors(plain: nn.Module, max_detections: int) -> nn.Module:
    """Make one of torchvision's detectors accept and return only tensors, in place; names in its state do not change.

    Its outputs are converted to fp32 under autocast: torchvision gives boxes the type of the outputs, and bf16 can't
    represent pixel positions above 256.
    """
    kind = type(plain)
    plain.__class__ = type(kind.__name__, (_TensorDetector, kind), {"max_detections": max_detections})
    plain.transform.__class__ = _PreparedImages
    for name in ("backbone", "head", "rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor"):
        try:
            module = plain.get_submodule(name)
        except AttributeError:
            continue
        module.register_forward_hook(_to_fp32)
    return plain


def _to_fp32(module: nn.Module, inputs: Any, output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.float()
    if isinstance(output, dict):
        return type(output)((name, _to_fp32(module, inputs, each)) for name, each in output.items())
    return type(output)(_to_fp32(module, inputs, each) for each in output)
