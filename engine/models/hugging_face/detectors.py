"""Detectors of transformers, which use the library's losses. RF-DETR also segments instances."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_convert, generalized_box_iou
from transformers.loss import loss_lw_detr, loss_rf_detr, loss_rt_detr

from engine.contract.images import SizeLimits
from engine.models.base import validate_image_size
from engine.models.hugging_face.hub_model import HubModel, crop_masks, derive_image_seeds, sum_by_kind, use_seed
from engine.models.tensor_detector import FINE_MASK_SIDE, Detections
from engine.models.torchvision_detectors import convert_box_targets, convert_instance_targets, count_objects

_COEFFICIENTS = {
    "ce": "class_loss",
    "bbox": "bbox_loss",
    "giou": "giou_loss",
    "mask_ce": "mask_class_loss",
    "mask_dice": "mask_dice_loss",
}
"""Names of RF-DETR's coefficients, by the kind of loss that they multiply.

The other detectors apply their coefficients themselves.
"""


class HubDetector(HubModel):
    """Mixin that adapts detectors of the transformers library to the interface of torchvision's detectors.

    It converts targets and outputs, and scales the losses per image instead of per object (see `compute_losses`).
    """

    def compute_losses(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the losses of a batch by name, each divided by the number of its images.

        Those in `_COEFFICIENTS` are multiplied by coefficients in the model's configuration. The losses are sums over
        the objects in these images. transformers divides these sums by the number of objects times the number of query
        groups. This division is undone.
        """
        labels = self.convert_to_labels(inputs, self.convert_to_objects(targets))
        sums = sum_by_kind(self.call_library(inputs, labels=labels).loss_dict, self.loss_names)
        query_groups = getattr(self.config, "group_detr", 1)  # each is compared with all objects
        object_count = sum(len(image_labels["boxes"]) for image_labels in labels)
        library_divisor = max(object_count * query_groups, 1)
        factor = library_divisor / query_groups / len(inputs)  # the query groups are averaged
        return {name: loss * self._get_coefficient(name) * factor for name, loss in sums.items()}

    def _get_coefficient(self, loss_name: str) -> float:
        """Return the coefficient of a loss in the model's configuration, or 1 if there is none (see `_COEFFICIENTS`)."""
        if loss_name not in _COEFFICIENTS:
            return 1.0
        coefficient: float = getattr(self.config, f"{_COEFFICIENTS[loss_name]}_coefficient", 1.0)
        return coefficient

    def loss_units(self, targets: Tensor) -> Tensor:
        return count_objects(targets)

    def convert_to_labels(self, inputs: Tensor, objects: Detections) -> list[dict[str, Any]]:
        """Convert the annotated objects of each image to the labels that transformers expects."""
        height, width = inputs.shape[-2:]
        scale = inputs.new_tensor([width, height, width, height])
        return [
            {"class_labels": each["labels"] - 1, "boxes": box_convert(each["boxes"] / scale, "xyxy", "cxcywh")}
            for each in objects
        ]

    def convert_to_objects(self, targets: Tensor) -> Detections:
        """Convert a batch of targets to the objects of each image, like targets of torchvision's detectors."""
        return convert_box_targets(targets)

    def compute_predictions(self, inputs: Tensor) -> Tensor:
        """Return the detections with the highest scores in each image, like the post-processing in transformers.

        A detection is one query with one class.
        """
        outputs = self.call_library(inputs)
        boxes, scores = self._compute_boxes_and_scores(outputs, inputs)
        best_scores, positions = scores.flatten(1).topk(min(self.max_detections, scores[0].numel()))
        class_count = scores.shape[-1]
        queries = positions // class_count
        boxes = boxes.gather(1, queries[..., None].expand(-1, -1, 4))
        columns = [boxes, best_scores[..., None], (positions % class_count)[..., None].float()]
        return torch.cat([*columns, *self.compute_mask_columns(outputs, queries, boxes, inputs)], 2)

    def compute_mask_columns(self, outputs: Any, queries: Tensor, boxes: Tensor, inputs: Tensor) -> list[Tensor]:
        """Return the columns of mask values that follow the class in each detection, or [] without masks.

        The columns are one tensor [n, k, s * s]. `outputs` are those of the library's model for the images `inputs`,
        `queries` [n, k] are the queries of the detections, and `boxes` [n, k, 4] their boxes in pixels.
        """
        return []

    def detect(self, inputs: Tensor) -> Detections:
        """Return the box of each query with its best class and score, in a dict for each image.

        The keys are those of torchvision's detectors, and class 0 is the background.
        """
        detections = []
        for boxes, scores in zip(*self._compute_boxes_and_scores(self.call_library(inputs), inputs), strict=True):
            best_scores, labels = scores.max(1)
            detections.append({"boxes": boxes, "scores": best_scores, "labels": labels + 1})
        return detections

    def _compute_boxes_and_scores(self, outputs: Any, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the boxes of all queries in pixels, [n, q, 4], and their scores for each class, [n, q, classes]."""
        height, width = inputs.shape[-2:]
        scale = torch.tensor([width, height, width, height], dtype=torch.float32, device=inputs.device)
        boxes = box_convert(outputs.pred_boxes.float(), "cxcywh", "xyxy").clamp(0, 1) * scale
        return boxes, outputs.logits.float().sigmoid()

    def adapt_to_size(self, title: str, size: int) -> None:
        """Adapt the model to images of `size` px. Raises TaskError if it can't accept them.

        transformers selects the queries among the positions of the feature maps. If there are fewer positions than
        queries, the number of queries is reduced.
        """
        validate_image_size(title, size, *self.accepted_sizes)
        self.max_detections = self.config.num_queries = min(self.config.num_queries, self._count_positions(size))

    @property
    def accepted_sizes(self) -> SizeLimits:
        """Minimum image size of the model and the step between its sizes, for images that all have the same size.

        RF-DETR has weights for each query, so its feature maps need a position for each.
        """
        smallest = self.size_limits.smallest if hasattr(self.config, "group_detr") else self.stride
        return SizeLimits(smallest, self.stride)

    @property
    def size_limits(self) -> SizeLimits:
        """Limits for image sizes that change during training.

        At the smallest size, the feature maps have at least as many positions as there are queries.
        """
        sizes = itertools.count(self.size_step, self.size_step)
        smallest = next(size for size in sizes if self._count_positions(size) >= self.config.num_queries)
        return SizeLimits(smallest, self.size_step)

    def _count_positions(self, size: int) -> int:
        """Return the number of positions in all feature maps of an image of `size` px."""
        strides = getattr(self.config, "feat_strides", None) or [self.config.backbone_config.patch_size]
        return sum((size // stride) ** 2 for stride in strides)


class HubMasker(HubDetector):
    """Mixin for the instance segmentation models of RF-DETR."""

    def convert_to_objects(self, targets: Tensor) -> Detections:
        return convert_instance_targets(targets)

    def convert_to_labels(self, inputs: Tensor, objects: Detections) -> list[dict[str, Any]]:
        """Convert the objects of each image to the labels that transformers expects, with "masks" and a "seed".

        The seed, derived from the image, is for the random points at which the mask loss compares masks.
        """
        images = zip(super().convert_to_labels(inputs, objects), objects, derive_image_seeds(inputs), strict=True)
        return [labels | {"masks": each["masks"].float(), "seed": seed} for labels, each, seed in images]

    def compute_mask_columns(self, outputs: Any, queries: Tensor, boxes: Tensor, inputs: Tensor) -> list[Tensor]:
        """Return the mask probabilities of the chosen queries, cropped to their boxes."""
        logits = outputs.pred_masks.float()
        chosen = logits.gather(1, queries[..., None, None].expand(-1, -1, *logits.shape[-2:]))
        size = (inputs.shape[-2], inputs.shape[-1])
        masks = crop_masks(chosen.flatten(0, 1).sigmoid(), boxes.flatten(0, 1), size, FINE_MASK_SIDE)
        return [masks.unflatten(0, queries.shape)]


class _MatcherByImage(loss_rf_detr.RfDetrHungarianMatcher):
    """RF-DETR's matcher, changed to match each image separately, at mask points that depend only on this image.

    The original draws points for the entire batch, so that they depend on the other images.
    """

    def forward(self, outputs: Any, targets: Any, group_detr: int = 1) -> list[tuple[Tensor, Tensor]]:
        """Match each image alone, under its own seed, so that its result doesn't depend on the rest of the batch."""
        matches: list[tuple[Tensor, Tensor]] = []
        for index, target in enumerate(targets):
            if not len(target["class_labels"]):
                matches.append((torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)))
                continue
            image_outputs = {name: outputs[name][index : index + 1] for name in ("logits", "pred_boxes", "pred_masks")}
            with use_seed(target["seed"], outputs["logits"].device):
                matches += super().forward(image_outputs, [target], group_detr)
        return matches


class _LossByImage(loss_rf_detr.RfDetrImageLoss):
    """RF-DETR's loss, changed to compare masks at points that depend only on their image, not on the batch."""

    def loss_masks(self, outputs: Any, targets: list[dict[str, Any]], indices: Any, num_boxes: float) -> Any:
        """Sum the mask losses of single images, each under its own seed, since transformers draws random points."""
        masks = outputs["pred_masks"]
        sums = dict.fromkeys(("loss_mask_ce", "loss_mask_dice"), masks.sum() * 0)
        for index, (target, pairs) in enumerate(zip(targets, indices, strict=True)):
            if len(pairs[0]):
                with use_seed(target["seed"], masks.device):
                    image_outputs = {"pred_masks": masks[index : index + 1]}
                    image_losses = super().loss_masks(image_outputs, [target], [pairs], num_boxes)
                sums = {name: loss + image_losses[name] for name, loss in sums.items()}
        return sums


def _is_alone() -> bool:
    """Return False, in place of a function in transformers that checks if torch.distributed is initialized.

    If the result were True, transformers would sum the number of objects over all ranks, and wait for ranks whose part
    of the batch is empty. The strategies compute this sum instead.
    """
    return False


loss_lw_detr._is_torch_distributed_initialized = loss_rf_detr._is_torch_distributed_initialized = _is_alone
vars(loss_rf_detr).update(RfDetrHungarianMatcher=_MatcherByImage, RfDetrImageLoss=_LossByImage)
for _module in (loss_rt_detr, loss_lw_detr, loss_rf_detr):
    # The library's function makes the host wait twice, to raise an error for boxes that are not finite.
    vars(_module)["generalized_box_iou"] = generalized_box_iou
