"""torchvision's detectors with one tensor in and one tensor out, as the strategies know models.

In training a detector computes its loss by itself. In evaluation it gives a fixed number of detections for each image.
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
"""Values of a detection: x1, y1, x2, y2 in pixels, its score, its class."""
MASK_SIDE = 28
"""The side of Mask R-CNN's masks, each relative to its box (He et al. 2017, figure 4)."""
NONE = -1
"""The class that pads an image's true boxes, and the score that pads its detections."""

Wanted = list[dict[str, Tensor]]
"""Targets of torchvision's detectors, per image: "boxes" [k, 4], "labels" [k] from 1 on, optionally "masks"."""


class Instances(NamedTuple):
    """Objects of one image.

    Attributes:
        boxes: Boxes around their pixels, [k, 4].
        classes: Classes, [k].
        ignored: Ignored objects, bool [k].
        masks: Pixels, bool [k, h, w].
    """

    boxes: Tensor
    classes: Tensor
    ignored: Tensor
    masks: Tensor


def instances(planes: Tensor) -> Instances:
    """Return the objects in an image's planes, int64 [2, h, w]: the number of each pixel's object or 0, and its class.

    An object without a class is ignored.
    """
    numbers, classes = planes
    present = numbers.unique()
    masks = numbers == present[present > 0][:, None, None]
    rows, columns = masks.any(2).byte(), masks.any(1).byte()
    height, width = numbers.shape
    sides = (columns.argmax(1), rows.argmax(1), width - columns.flip(1).argmax(1), height - rows.flip(1).argmax(1))
    of = torch.where(masks, classes, 0).amax((1, 2)) if len(masks) else classes.new_empty(0)
    return Instances(torch.stack(sides, 1).float(), of, of == NO_CLASS, masks)


def wanted_boxes(targets: Tensor) -> Wanted:
    """Return torchvision's targets for targets [n, m, 6]: x1, y1, x2, y2 in pixels, class, ignored.

    Ignored objects are left out, as in torchvision's training (references/detection).
    """
    wanted = []
    for target in targets:
        there = (target[:, 4] >= 0) & (target[:, 5] == 0) & (target[:, 2:4] > target[:, :2]).all(1)
        wanted.append({"boxes": target[there, :4], "labels": target[there, 4].long() + 1})
    return wanted


def wanted_instances(targets: Tensor) -> Wanted:
    """Return torchvision's targets for planes, int64 [n, 2, h, w], like `wanted_boxes`."""
    wanted = []
    for planes in targets:
        found = instances(planes)
        learnt = ~found.ignored
        masks = found.masks[learnt].byte()
        wanted.append({"boxes": found.boxes[learnt], "labels": found.classes[learnt] + 1, "masks": masks})
    return wanted


class _OneTensor(nn.Module):
    """Mixin for torchvision's detectors, before them in the order of base classes.

    Takes images [n, c, h, w], and in training targets; gives in training the loss of each image [n], which is the sum
    of the detector's losses over the batch for all alike, and in evaluation the detections [n, k, 6 or 6 + 28 * 28].
    """

    most: int
    """The most detections per image."""

    def forward(self, inputs: Tensor, targets: Tensor | None = None) -> Tensor:
        if not isinstance(inputs, Tensor):
            raise TypeError("the boxes that it processes depend on the image")
        if self.training:
            if targets is None:
                raise ValueError("A detector needs images and targets for training.")
            wanted = wanted_instances(targets) if targets.dim() == 4 else wanted_boxes(targets)
            losses = super().forward(inputs, wanted)
            return torch.stack(list(losses.values())).sum().expand(len(inputs))
        return _joined(self.detections(inputs), self.most, inputs)

    def detections(self, inputs: Tensor) -> Wanted:
        """Return each image's detections as torchvision gives them in evaluation.

        "scores" [k] have gradients if those are enabled.
        """
        found: Wanted = super().forward(inputs)
        return found


@torch.no_grad()
def _joined(found: Wanted, most: int, inputs: Tensor) -> Tensor:
    """Return the detections of each image in one tensor, padded to `most`."""
    width = BOX + (MASK_SIDE**2 if any("masks" in each for each in found) else 0)
    joined = inputs.new_zeros((len(found), most, width), dtype=torch.float32)
    joined[..., 4] = NONE
    for row, each in zip(joined, found, strict=True):
        parts = [each["boxes"], each["scores"][:, None], each["labels"][:, None] - 1]
        if "masks" in each:
            parts.append(each["masks"].flatten(1))
        row[: len(each["boxes"])] = torch.cat([part.float() for part in parts], 1)
    return joined


class _AsGiven(GeneralizedRCNNTransform):
    """Transform for images that are normalized and resized already.

    It pads them at the right and bottom like torchvision's; masks stay in their boxes.
    """

    def forward(self, images: Tensor, targets: Wanted | None = None) -> tuple[ImageList, Wanted | None]:
        height, width = images.shape[-2:]
        below, right = (-side % self.size_divisible for side in (height, width))
        return ImageList(functional.pad(images, (0, right, 0, below)), [(height, width)] * len(images)), targets

    def postprocess(self, result: Wanted, image_shapes: Any, original_image_sizes: Any) -> Wanted:
        return result


def tensors_alone(plain: nn.Module, most: int) -> nn.Module:
    """Make one of torchvision's detectors take and return tensors only, in place; the names of its state stay.

    Under autocast its outputs become fp32: torchvision gives boxes the type of the outputs, and bf16 can't represent pixel
    positions beyond 256.
    """
    kind = type(plain)
    plain.__class__ = type(kind.__name__, (_OneTensor, kind), {"most": most})
    plain.transform.__class__ = _AsGiven
    for name in ("backbone", "head", "rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor"):
        try:
            part = plain.get_submodule(name)
        except AttributeError:
            continue
        part.register_forward_hook(_in_fp32)
    return plain


def _in_fp32(module: nn.Module, given: Any, output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.float()
    if isinstance(output, dict):
        return type(output)((name, _in_fp32(module, given, each)) for name, each in output.items())
    return type(output)(_in_fp32(module, given, each) for each in output)
