"""Torchvision's detectors as `TensorDetector`, and the conversion of targets to the form that torchvision expects."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.detection import FCOS, FasterRCNN, MaskRCNN, RetinaNet
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSD
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from engine.data.decoding.mask_values import NO_CLASS
from engine.models.tensor_detector import DETECTION_VALUES, MASK_SIDE, NO_SCORE, Detections, TensorDetector


class Instances(NamedTuple):
    """Objects in one image.

    Attributes:
        boxes: Boxes around their pixels, [k, 4].
        classes: Classes, [k].
        ignored: True for ignored objects, bool [k].
        masks: Pixels of each object, bool [k, h, w].
    """

    boxes: Tensor
    classes: Tensor
    ignored: Tensor
    masks: Tensor


def split_instances(planes: Tensor) -> Instances:
    """Split planes, int64 [2, h, w], into objects.

    The first plane has the number of the object at each pixel, or 0 for no object, and the second plane the object's
    class. An object without a class is ignored.
    """
    present = planes[0].unique()
    return _select_objects(planes, present[present > 0])


def _select_objects(planes: Tensor, objects: Tensor) -> Instances:
    """Return the objects with the numbers `objects` [k], in this order, with the boxes around their pixels.

    `planes` [2, h, w] have the number and the class of the object at each pixel.
    """
    numbers, classes = planes
    masks = numbers == objects[:, None, None]
    rows, columns = masks.any(2).byte(), masks.any(1).byte()  # 1 for those with pixels of the object
    height, width = numbers.shape
    # The positions of the first and the last 1: left, top, right and bottom.
    sides = (columns.argmax(1), rows.argmax(1), width - columns.flip(1).argmax(1), height - rows.flip(1).argmax(1))
    labels = torch.where(masks, classes, 0).amax((1, 2)) if len(masks) else classes.new_empty(0)
    boxes = torch.stack(sides, 1).float()
    return Instances(boxes, labels, ignored=labels == NO_CLASS, masks=masks)


def is_present(values: Tensor) -> Tensor:
    """Return a bool tensor [n, 256] that is True for each value from 0 to 255 that occurs in `values` [n, ...]."""
    return values.new_zeros((len(values), 256), dtype=torch.bool).scatter_(1, values.flatten(1), True)


def find_true_positions(rows: Tensor) -> list[Tensor]:
    """Return the positions of the True values in each of the `rows` [n, m], in ascending order.

    The host must wait for the device once, because it needs the number of positions.
    """
    order = rows.int().argsort(dim=1, descending=True, stable=True)
    return [row[:count] for row, count in zip(order, rows.sum(1).tolist(), strict=True)]


def count_objects(targets: Tensor) -> Tensor:
    """Return the number of objects that are neither ignored nor empty, as a 0-dimensional float32 tensor.

    `targets` are boxes [n, m, 6] or planes [n, 2, h, w].
    """
    return (has_instance(targets) if targets.dim() == 4 else _is_trained_on(targets)).sum().float()


def has_instance(planes: Tensor) -> Tensor:
    """Return a bool tensor [n, 256] that is True for the number of each object with a class.

    `planes` are int64 [n, 2, h, w].
    """
    is_object = is_present(torch.where(planes[:, 1] == NO_CLASS, 0, planes[:, 0]))
    is_object[:, 0] = False
    return is_object


def convert_box_targets(targets: Tensor) -> Detections:
    """Convert targets [n, m, 6] to torchvision's targets. The columns are x1, y1, x2, y2 in pixels, class, and ignored.

    Ignored objects are left out, as in torchvision's training (references/detection).
    """
    rows = find_true_positions(_is_trained_on(targets))
    boxes_of_images = [target[positions] for target, positions in zip(targets, rows, strict=True)]
    return [{"boxes": boxes[:, :4], "labels": boxes[:, 4].long() + 1} for boxes in boxes_of_images]


def _is_trained_on(boxes: Tensor) -> Tensor:
    """Return a bool tensor [...] that is True for the boxes [..., 6] that are neither padding, ignored nor empty."""
    return (boxes[..., 4] >= 0) & (boxes[..., 5] == 0) & (boxes[..., 2:4] > boxes[..., :2]).all(-1)


def convert_instance_targets(targets: Tensor) -> Detections:
    """Convert planes, int64 [n, 2, h, w], to torchvision's targets with masks. Ignored objects are left out."""
    objects = [_select_objects(*each) for each in zip(targets, find_true_positions(has_instance(targets)), strict=True)]
    return [{"boxes": each.boxes, "labels": each.classes + 1, "masks": each.masks.byte()} for each in objects]


_LOSSES: dict[type[nn.Module], tuple[str, ...]] = {
    FasterRCNN: ("loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"),
    MaskRCNN: ("loss_classifier", "loss_box_reg", "loss_mask", "loss_objectness", "loss_rpn_box_reg"),
    RetinaNet: ("classification", "bbox_regression"),
    FCOS: ("classification", "bbox_regression", "bbox_ctrness"),
    SSD: ("classification", "bbox_regression"),
}
"""Names of the losses of each detector class in torchvision.

Subclasses, which may have other losses, report only their sum.
"""
_SUM_ONLY = ("loss",)


class _TorchvisionDetector(TensorDetector):
    """Mixin that makes torchvision's detectors a `TensorDetector`."""

    def compute_losses(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return torchvision's losses by name, or only their sum if their names are not known.

        `targets` are planes of objects [n, 2, h, w], or boxes [n, m, 6].
        """
        converted = convert_instance_targets(targets) if targets.dim() == 4 else convert_box_targets(targets)
        losses: dict[str, Tensor] = self.call_library(inputs, converted)
        return {"loss": torch.stack(list(losses.values())).sum()} if self.loss_names == _SUM_ONLY else losses

    def compute_predictions(self, inputs: Tensor) -> Tensor:
        return _join_detections(self.detect(inputs), self.max_detections, inputs)

    def detect(self, inputs: Tensor) -> Detections:
        detections: Detections = self.call_library(inputs)
        return detections


@torch.no_grad()
def _join_detections(detections: Detections, max_detections: int, inputs: Tensor) -> Tensor:
    """Return the detections of all images as one tensor, [n, max_detections, 6] or, with masks, [..., 6 + s * s].

    The columns are the box x1, y1, x2, y2, the score, the class and, if the model predicts masks, the mask of
    `MASK_SIDE` (s) cells on each side. Images with fewer detections are padded with `NO_SCORE` as score. The tensor is
    on the device of `inputs`.
    """
    has_masks = any("masks" in each for each in detections)
    width = DETECTION_VALUES + (MASK_SIDE**2 if has_masks else 0)
    joined = inputs.new_zeros((len(detections), max_detections, width), dtype=torch.float32)
    joined[..., 4] = NO_SCORE
    for rows, of_image in zip(joined, detections, strict=True):
        # Label 0 is the background.
        columns = [of_image["boxes"], of_image["scores"][:, None], of_image["labels"][:, None] - 1]
        if has_masks:
            columns.append(of_image["masks"].flatten(1))
        rows[: len(of_image["boxes"])] = torch.cat([column.float() for column in columns], 1)
    return joined


class _PreparedImages(GeneralizedRCNNTransform):
    """Transform for images that are already normalized and resized, in place of torchvision's transform.

    It only pads the images at the right and bottom, as torchvision does. Masks are not pasted into the image.
    """

    def forward(self, images: Tensor, targets: Detections | None = None) -> tuple[ImageList, Detections | None]:
        """Return the padded images with their size before the padding, and the unchanged targets."""
        height, width = images.shape[-2:]
        below, right = (-side % self.size_divisible for side in (height, width))
        return ImageList(functional.pad(images, (0, right, 0, below)), [(height, width)] * len(images)), targets

    def postprocess(self, result: Detections, image_shapes: Any, original_image_sizes: Any) -> Detections:
        return result


def convert_to_tensor_detector(plain: nn.Module, max_detections: int) -> nn.Module:
    """Change the class of one of torchvision's detectors, in place, so that it accepts and returns only tensors.

    Names in its state do not change. Under autocast, its outputs are converted to fp32. torchvision gives boxes the
    type of the outputs, and bf16 can't represent pixel positions above 256.
    """
    plain_class = type(plain)
    attributes = {"max_detections": max_detections, "loss_names": _LOSSES.get(plain_class, _SUM_ONLY)}
    plain.__class__ = type(plain_class.__name__, (_TorchvisionDetector, plain_class), attributes)
    plain.transform.__class__ = _PreparedImages
    for name in ("backbone", "head", "rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor"):
        try:
            module = plain.get_submodule(name)
        except AttributeError:  # each detector has only some of these modules
            continue
        module.register_forward_hook(_to_fp32)
    return plain


def _to_fp32(module: nn.Module, inputs: Any, output: Any) -> Any:
    """Convert the tensors in a module's output to fp32. This is a forward hook, so `module` and `inputs` are unused."""
    if isinstance(output, Tensor):
        return output.float()
    if isinstance(output, dict):
        return type(output)((name, _to_fp32(module, inputs, each)) for name, each in output.items())
    return type(output)(_to_fp32(module, inputs, each) for each in output)
