"""Torchvision's detectors with post-processing on tensors of fixed shapes, which torch.export and ONNX require.

torchvision selects variable numbers of boxes, which the exporter can't trace (pytorch/vision#9306). Here, rejected
boxes remain in the tensors with a score of -1, and the best boxes are selected at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from onnxscript import opset18
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.detection import FCOS, FasterRCNN, RetinaNet
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.ssd import SSD
from torchvision.ops import nms, roi_align

from engine.models.tensor_detector import NO_SCORE
from engine.torch_compat import IS_ALL_TRUE

op: Any = opset18


@torch.library.custom_op("footplate::nms_mask", mutates_args=())
def nms_mask(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Apply non-maximum suppression to boxes [n, k, 4] with scores [n, k] in each of n images.

    Returns a mask of the selected boxes, bool [n, k]. `threshold` is the IoU above which a box with a lower score is
    dropped. Boxes without a positive score are never selected.
    """
    mask = torch.zeros_like(scores, dtype=torch.bool)
    for image_mask, image_boxes, image_scores in zip(mask, boxes, scores, strict=True):
        is_valid = image_scores > 0
        selected = nms(image_boxes[is_valid], image_scores[is_valid], threshold)  # indices into the valid boxes
        image_mask[is_valid.nonzero()[:, 0][selected]] = True
    return mask


@nms_mask.register_fake
def _(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Return a tensor with the shape and type of the result of `nms_mask`, for tracing."""
    return torch.empty_like(scores, dtype=torch.bool)


def _nms_mask_onnx(boxes: Any, scores: Any, threshold: float) -> Any:
    """Compute `nms_mask` with the operators of ONNX."""
    max_detections = op.Slice(op.Shape(scores), [1], [2])
    selected = op.NonMaxSuppression(boxes, op.Unsqueeze(scores, [1]), max_detections, [threshold], [0.0])
    positions = op.Gather(selected, [0, 2], axis=1)
    ones = op.Expand([1.0], op.Slice(op.Shape(selected), [0], [1]))
    return op.Cast(op.ScatterND(op.ConstantOfShape(op.Shape(scores)), positions, ones), to=9)  # to bool


def _is_all_true_onnx(values: Any) -> Any:
    """Return True if all values are True, with the operators of ONNX."""
    return op.Cast(op.ReduceMin(op.Cast(values, to=6), keepdims=0), to=9)  # from bool to int32 and back


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.footplate.nms_mask.default: _nms_mask_onnx,
    IS_ALL_TRUE: _is_all_true_onnx,
}
"""ONNX translations of operations that torch's exporter can't translate."""


class _Candidates(NamedTuple):
    """Boxes in each of n images.

    Attributes:
        boxes: x1, y1, x2, y2 in pixels, [n, k, 4].
        scores: Scores, or -1 for rejected boxes, [n, k].
        classes: Class numbers, int64 [n, k].
    """

    boxes: Tensor
    scores: Tensor
    classes: Tensor


def create_static_detector(plain: nn.Module, channels: int, size: int) -> nn.Module | None:
    """Return a module that computes the outputs of `plain` with fixed shapes, or None for an unsupported detector.

    `plain` must be a torchvision detector in evaluation mode, created by `convert_to_tensor_detector`. The module
    accepts images [n, channels, size, size] and returns [n, max_detections, 6 or 6 + 28 * 28].
    """
    for plain_class, static_class in ((FasterRCNN, _RCNN), (RetinaNet, _RetinaNet), (FCOS, _Fcos), (SSD, _Ssd)):
        if isinstance(plain, plain_class):
            detector: nn.Module = static_class(plain, channels, size)
            return detector.eval()
    return None


class _StaticDetector(nn.Module):
    """Detector for images of one size, with precomputed anchors [a, 4].

    `anchor_counts` holds the number of anchors on each feature level.
    """

    anchors: Tensor

    def __init__(self, plain: Any, channels: int, size: int) -> None:
        super().__init__()
        self.plain = plain
        self.size = size
        generator = plain.rpn.anchor_generator if isinstance(plain, FasterRCNN) else plain.anchor_generator
        with torch.no_grad():
            images = self._pad_to_stride(torch.zeros(1, channels, size, size))
            plain(torch.zeros(1, channels, size, size))  # poolers set their scales at the first call
            features = self._extract_features(images)
            (anchors,) = generator(ImageList(images, [(size, size)]), features)
        self.register_buffer("anchors", anchors, persistent=False)
        anchors_per_location = getattr(generator, "num_anchors_per_location", None)  # SSD's generator has none
        cells = [level.shape[-2] * level.shape[-1] for level in features]
        self.anchor_counts = (
            [cell * number for cell, number in zip(cells, anchors_per_location(), strict=True)]
            if anchors_per_location
            else []
        )

    def _pad_to_stride(self, inputs: Tensor) -> Tensor:
        """Pad images on the right and at the bottom until their sides are multiples of the detector's stride."""
        return functional.pad(inputs, (0, -self.size % self.plain.transform.size_divisible) * 2)

    def _extract_features(self, images: Tensor) -> list[Tensor]:
        """Run the backbone, and return its feature maps, one for each level."""
        features = self.plain.backbone(images)
        return [features] if isinstance(features, Tensor) else list(features.values())

    def _decode(self, deltas: Tensor, anchors: Tensor, coder: Any) -> Tensor:
        """Convert deltas [n, k, 4] to boxes, which are clipped to the image.

        The deltas are relative to `anchors` [n, k, 4]. `coder` is the function that decodes them.
        """
        decoded = coder(deltas.reshape(-1, 4), anchors.reshape(-1, 4))
        return decoded.reshape(deltas.shape).clamp(0, self.size)

    def _select_best(self, candidates: _Candidates, threshold: float, max_detections: int) -> _Candidates:
        """Return up to `max_detections` boxes with the highest scores, after non-maximum suppression within each class.

        `threshold` is the IoU for the suppression. Boxes of different classes are first moved apart so that they don't
        suppress each other.
        """
        class_offsets = candidates.classes[..., None].to(candidates.boxes.dtype) * (self.size + 1)
        mask = nms_mask(candidates.boxes + class_offsets, candidates.scores, threshold)
        scores, indices = torch.where(mask, candidates.scores, NO_SCORE).topk(
            min(max_detections, candidates.scores.shape[1]), dim=1
        )
        boxes = candidates.boxes.gather(1, indices[..., None].expand(-1, -1, 4))
        is_valid = scores > 0
        return _Candidates(boxes * is_valid[..., None], scores, candidates.classes.gather(1, indices) * is_valid)

    def _concatenate(self, candidates: _Candidates, *extra_outputs: Tensor) -> Tensor:
        """Return candidates as rows of x1, y1, x2, y2, score, class and extra outputs, [n, k, 6 or more]."""
        return torch.cat(
            [candidates.boxes, candidates.scores[..., None], candidates.classes[..., None].float(), *extra_outputs], 2
        )


class _RCNN(_StaticDetector):
    """Faster R-CNN and Mask R-CNN with fixed shapes.

    The code follows `RegionProposalNetwork.filter_proposals` and `RoIHeads.postprocess_detections`.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the best detections as rows (see `_concatenate`), with masks as extra outputs if the detector has masks."""
        images = self._pad_to_stride(inputs)
        feature_maps = self.plain.backbone(images)
        feature_maps = {"0": feature_maps} if isinstance(feature_maps, Tensor) else feature_maps
        heads = self.plain.roi_heads
        proposals = self._select_proposals(list(feature_maps.values()))
        box_features = heads.box_head(self._pool(heads.box_roi_pool, feature_maps, proposals.boxes))
        candidates = self._select_detections(proposals, *heads.box_predictor(box_features))
        if not heads.has_mask():
            return self._concatenate(candidates)
        masks = heads.mask_predictor(heads.mask_head(self._pool(heads.mask_roi_pool, feature_maps, candidates.boxes)))
        # The first mask is that of the background.
        class_index = (candidates.classes.reshape(-1, 1, 1, 1) + 1).expand(-1, 1, *masks.shape[-2:])
        probabilities = masks.gather(1, class_index).sigmoid().reshape(*candidates.classes.shape, -1)
        # Rejected boxes get empty masks.
        return self._concatenate(candidates, probabilities * (candidates.scores > 0)[..., None])

    def _select_proposals(self, features: list[Tensor]) -> _Candidates:
        """Return the best proposals after non-maximum suppression, which treats each feature level separately."""
        rpn = self.plain.rpn
        level_boxes = []
        first_anchor = 0
        for level, (scores, deltas) in enumerate(zip(*rpn.head(features), strict=True)):
            # [n, a, h, w] and [n, 4 * a, h, w] become [n, h * w * a] and [n, h * w * a, 4], as the anchors.
            scores = scores.permute(0, 2, 3, 1).flatten(1)  # noqa: PLW2901
            count = scores.shape[1]
            deltas = deltas.unflatten(1, (-1, 4)).permute(0, 3, 4, 1, 2).flatten(1, 3)  # noqa: PLW2901
            scores, indices = scores.topk(min(rpn.pre_nms_top_n(), count), dim=1)  # noqa: PLW2901
            boxes = self._decode(
                deltas.gather(1, indices[..., None].expand(-1, -1, 4)),
                self.anchors[first_anchor : first_anchor + count][indices],
                rpn.box_coder.decode_single,
            )
            probabilities = scores.sigmoid()
            probabilities = torch.where(
                _has_min_side(boxes, rpn.min_size) & (probabilities >= rpn.score_thresh), probabilities, NO_SCORE
            )
            # The level takes the place of the class, since boxes of different classes don't suppress each other.
            level_boxes.append(_Candidates(boxes, probabilities, torch.full_like(indices, level)))
            first_anchor += count
        return self._select_best(_concatenate_levels(level_boxes), rpn.nms_thresh, rpn.post_nms_top_n())

    def _pool(self, pooler: Any, feature_maps: dict[str, Tensor], boxes: Tensor) -> Tensor:
        """Extract features for all boxes from every level, and select the right level for each box.

        `pooler` is a `MultiScaleRoIAlign`, and `feature_maps` are the feature maps by name.
        """
        image_numbers = torch.arange(boxes.shape[0], device=boxes.device, dtype=boxes.dtype)[:, None, None]
        regions = torch.cat([image_numbers.expand(-1, boxes.shape[1], 1), boxes], 2).flatten(0, 1)
        levels = [feature_maps[name] for name in pooler.featmap_names if name in feature_maps]
        level_of_box = pooler.map_levels([boxes.flatten(0, 1)])[:, None, None, None]
        pooled = None
        for level_index, (level, scale) in enumerate(zip(levels, pooler.scales, strict=True)):
            aligned = roi_align(level, regions, pooler.output_size, scale, pooler.sampling_ratio)
            pooled = aligned if pooled is None else torch.where(level_of_box == level_index, aligned, pooled)
        assert pooled is not None
        return pooled

    def _select_detections(self, proposals: _Candidates, logits: Tensor, deltas: Tensor) -> _Candidates:
        """Return the best detections, given the class logits and the box deltas that the box head predicts."""
        heads = self.plain.roi_heads
        proposal_count, class_count = proposals.scores.shape[1], logits.shape[1]
        boxes = heads.box_coder.decode_single(deltas, proposals.boxes.reshape(-1, 4))
        boxes = boxes.reshape(-1, proposal_count, class_count, 4)[:, :, 1:].clamp(0, self.size)
        scores = logits.softmax(1).reshape(-1, proposal_count, class_count)[:, :, 1:]
        is_valid = (scores > heads.score_thresh) & _has_min_side(boxes, 1e-2) & (proposals.scores > 0)[..., None]
        class_numbers = torch.arange(class_count - 1, device=scores.device).expand_as(scores)
        scores = torch.where(is_valid, scores, NO_SCORE)
        candidates = _Candidates(boxes.flatten(1, 2), scores.flatten(1), class_numbers.flatten(1))
        return self._select_best(candidates, heads.nms_thresh, heads.detections_per_img)


class _AnchorDetector(_StaticDetector):
    """Detectors that classify each anchor on each level. The code follows RetinaNet's `postprocess_detections`."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the best detections of all feature levels as rows (see `_concatenate`)."""
        plain = self.plain
        outputs = plain.head(self._extract_features(self._pad_to_stride(inputs)))
        scores, deltas = self._compute_scores(outputs), outputs["bbox_regression"]
        classes = scores.shape[2]
        level_boxes = []
        first_anchor = 0
        for count in self.anchor_counts:
            level = slice(first_anchor, first_anchor + count)
            top_scores, indices = scores[:, level].flatten(1).topk(min(plain.topk_candidates, count * classes))
            anchor_indices = indices // classes  # in the flattened scores, the class changes fastest
            boxes = self._decode(
                deltas[:, level].gather(1, anchor_indices[..., None].expand(-1, -1, 4)),
                self.anchors[level][anchor_indices],
                self._get_coder(),
            )
            top_scores = torch.where(top_scores > plain.score_thresh, top_scores, NO_SCORE)
            level_boxes.append(_Candidates(boxes, top_scores, indices % classes))
            first_anchor += count
        candidates = self._select_best(_concatenate_levels(level_boxes), plain.nms_thresh, plain.detections_per_img)
        return self._concatenate(_drop_background(candidates))

    def _compute_scores(self, outputs: dict[str, Tensor]) -> Tensor:
        """Return the score of each class at each anchor, [n, anchors, classes], given the outputs of the head."""
        raise NotImplementedError

    def _get_coder(self) -> Any:
        """Return the torchvision function that converts deltas and anchors to boxes for this detector."""
        raise NotImplementedError


class _RetinaNet(_AnchorDetector):
    def _compute_scores(self, outputs: dict[str, Tensor]) -> Tensor:
        return outputs["cls_logits"].sigmoid()

    def _get_coder(self) -> Any:
        return self.plain.box_coder.decode_single


class _Fcos(_AnchorDetector):
    def _compute_scores(self, outputs: dict[str, Tensor]) -> Tensor:
        return (outputs["cls_logits"].sigmoid() * outputs["bbox_ctrness"].sigmoid()).sqrt()

    def _get_coder(self) -> Any:
        return self.plain.box_coder.decode


class _Ssd(_StaticDetector):
    """SSD and SSDlite with fixed shapes. As in `SSD.postprocess_detections`, each class is selected separately."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the best detections of all classes as rows (see `_concatenate`), after selecting the best of each class."""
        plain = self.plain
        outputs = plain.head(self._extract_features(self._pad_to_stride(inputs)))
        scores = outputs["cls_logits"].softmax(2)[:, :, 1:].transpose(1, 2)  # [n, classes, anchors]
        deltas = outputs["bbox_regression"]
        boxes = self._decode(deltas, self.anchors.expand_as(deltas), plain.box_coder.decode_single)
        probabilities, indices = scores.topk(min(plain.topk_candidates, scores.shape[2]), dim=2)
        classes = torch.arange(scores.shape[1], device=scores.device)[:, None].expand_as(indices)
        candidates = _Candidates(
            boxes.gather(1, indices.flatten(1)[..., None].expand(-1, -1, 4)),
            torch.where(probabilities > plain.score_thresh, probabilities, NO_SCORE).flatten(1),
            classes.flatten(1),
        )
        return self._concatenate(self._select_best(candidates, plain.nms_thresh, plain.detections_per_img))


def _has_min_side(boxes: Tensor, min_side: float) -> Tensor:
    """Return True for each of the boxes [..., 4] whose width and height are at least `min_side`."""
    return ((boxes[..., 2:] - boxes[..., :2]) >= min_side).all(-1)


def _concatenate_levels(level_boxes: list[_Candidates]) -> _Candidates:
    """Join the candidates of all feature levels in each image."""
    return _Candidates(*(torch.cat(each, 1) for each in zip(*level_boxes, strict=True)))


def _drop_background(candidates: _Candidates) -> _Candidates:
    """Return the candidates of a detector whose class 0 is the background, with its other classes numbered from 0.

    Candidates without a score get the class 0.
    """
    return candidates._replace(classes=(candidates.classes - 1) * (candidates.scores > 0))
