"""torchvision's detectors with post-processing of fixed shapes, as torch.export and ONNX need them.

torchvision keeps as many boxes as there happen to be, which its exporter can't follow (pytorch/vision#9306). Here
boxes that are dropped stay where they are, with a score of -1, and the best of them are taken at the end.
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

from engine.models.torchvision_detectors import NONE

op: Any = opset18


@torch.library.custom_op("footplate::nms_mask", mutates_args=())
def nms_mask(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Which of the boxes [n, k, 4] with scores [n, k] non-maximum suppression keeps, bool [n, k]; none with a score
    that is not positive.
    """
    kept = torch.zeros_like(scores, dtype=torch.bool)
    for row, of_image, likely in zip(kept, boxes, scores, strict=True):
        there = likely > 0
        row[there.nonzero()[:, 0][nms(of_image[there], likely[there], threshold)]] = True
    return kept


@nms_mask.register_fake
def _(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    return torch.empty_like(scores, dtype=torch.bool)


def _nms_mask_in_onnx(boxes: Any, scores: Any, threshold: float) -> Any:
    most = op.Slice(op.Shape(scores), [1], [2])
    selected = op.NonMaxSuppression(boxes, op.Unsqueeze(scores, [1]), most, [threshold], [0.0])
    places = op.Gather(selected, [0, 2], axis=1)
    ones = op.Expand([1.0], op.Slice(op.Shape(selected), [0], [1]))
    return op.Cast(op.ScatterND(op.ConstantOfShape(op.Shape(scores)), places, ones), to=9)  # to bool


TRANSLATIONS: dict[Callable[..., Any], Callable[..., Any]] = {torch.ops.footplate.nms_mask.default: _nms_mask_in_onnx}
"""What the exporter puts for the operations defined here."""


class _Boxes(NamedTuple):
    """`boxes` [n, k, 4], their `scores` [n, k], -1 where there is none, and `classes` int64 [n, k]."""

    boxes: Tensor
    scores: Tensor
    classes: Tensor


def static_detector(plain: nn.Module, channels: int, size: int) -> nn.Module | None:
    """A module that gives what `plain`, one of torchvision's detectors made by `tensors_alone`, gives for images [n,
    channels, size, size] in evaluation, [n, most, 6 or 6 + 28 * 28]; None for a detector of another kind.
    """
    for kind, static in ((FasterRCNN, _RCNN), (RetinaNet, _RetinaNet), (FCOS, _Fcos), (SSD, _Ssd)):
        if isinstance(plain, kind):
            made: nn.Module = static(plain, channels, size)
            return made.eval()
    return None


class _Static(nn.Module):
    """`anchors` [a, 4], of which each level of features has as many as `counts` says."""

    anchors: Tensor

    def __init__(self, plain: Any, channels: int, size: int) -> None:
        super().__init__()
        self.plain = plain
        self.size = size
        generator = plain.rpn.anchor_generator if isinstance(plain, FasterRCNN) else plain.anchor_generator
        with torch.no_grad():
            images = self._padded(torch.zeros(1, channels, size, size))
            plain(torch.zeros(1, channels, size, size))  # sets what poolers find out from the first images
            features = self._features(images)
            (anchors,) = generator(ImageList(images, [(size, size)]), features)
        self.register_buffer("anchors", anchors, persistent=False)
        each = getattr(generator, "num_anchors_per_location", None)
        cells = [level.shape[-2] * level.shape[-1] for level in features]
        self.counts = [cell * number for cell, number in zip(cells, each(), strict=True)] if each else []

    def forward(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def _padded(self, inputs: Tensor) -> Tensor:
        return functional.pad(inputs, (0, -self.size % self.plain.transform.size_divisible) * 2)

    def _features(self, images: Tensor) -> list[Tensor]:
        features = self.plain.backbone(images)
        return [features] if isinstance(features, Tensor) else list(features.values())

    def _decoded(self, deltas: Tensor, anchors: Tensor, coder: Any) -> Tensor:
        """Deltas [n, k, 4] from anchors [n, k, 4], within the image."""
        made = coder(deltas.reshape(-1, 4), anchors.reshape(-1, 4))
        return made.reshape(deltas.shape).clamp(0, self.size)

    def _best(self, found: _Boxes, threshold: float, most: int) -> _Boxes:
        """The `most` best after suppression within each class, whose boxes are moved apart for it."""
        apart = found.classes[..., None].to(found.boxes.dtype) * (self.size + 1)
        kept = nms_mask(found.boxes + apart, found.scores, threshold)
        scores, at = torch.where(kept, found.scores, NONE).topk(min(most, found.scores.shape[1]), dim=1)
        boxes = found.boxes.gather(1, at[..., None].expand(-1, -1, 4))
        there = scores > 0
        return _Boxes(boxes * there[..., None], scores, found.classes.gather(1, at) * there)

    def _joined(self, found: _Boxes, *more: Tensor) -> Tensor:
        return torch.cat([found.boxes, found.scores[..., None], found.classes[..., None].float(), *more], 2)


class _RCNN(_Static):
    """Faster and Mask R-CNN: `RegionProposalNetwork.filter_proposals` and `RoIHeads.postprocess_detections`."""

    def forward(self, inputs: Tensor) -> Tensor:
        images = self._padded(inputs)
        named = self.plain.backbone(images)
        named = {"0": named} if isinstance(named, Tensor) else named
        heads = self.plain.roi_heads
        proposals = self._proposals(list(named.values()))
        pooled = heads.box_head(self._pooled(heads.box_roi_pool, named, proposals.boxes))
        found = self._detections(proposals, *heads.box_predictor(pooled))
        if not heads.has_mask():
            return self._joined(found)
        masks = heads.mask_predictor(heads.mask_head(self._pooled(heads.mask_roi_pool, named, found.boxes)))
        own = (found.classes.reshape(-1, 1, 1, 1) + 1).expand(-1, 1, *masks.shape[-2:])
        likely = masks.gather(1, own).sigmoid().reshape(*found.classes.shape, -1)
        return self._joined(found, likely * (found.scores > 0)[..., None])

    def _proposals(self, features: list[Tensor]) -> _Boxes:
        rpn = self.plain.rpn
        parts = []
        begin = 0
        for level, (scores, deltas) in enumerate(zip(*rpn.head(features), strict=True)):
            scores = scores.permute(0, 2, 3, 1).flatten(1)  # noqa: PLW2901
            count = scores.shape[1]
            deltas = deltas.unflatten(1, (-1, 4)).permute(0, 3, 4, 1, 2).flatten(1, 3)  # noqa: PLW2901
            scores, at = scores.topk(min(rpn.pre_nms_top_n(), count), dim=1)  # noqa: PLW2901
            boxes = self._decoded(
                deltas.gather(1, at[..., None].expand(-1, -1, 4)),
                self.anchors[begin : begin + count][at],
                rpn.box_coder.decode_single,
            )
            likely = scores.sigmoid()
            likely = torch.where(_large(boxes, rpn.min_size) & (likely >= rpn.score_thresh), likely, NONE)
            parts.append(_Boxes(boxes, likely, torch.full_like(at, level)))
            begin += count
        return self._best(_together(parts), rpn.nms_thresh, rpn.post_nms_top_n())

    def _pooled(self, pooler: Any, named: dict[str, Tensor], boxes: Tensor) -> Tensor:
        """`MultiScaleRoIAlign`, of every level for all boxes, of which each takes its own."""
        number = torch.arange(boxes.shape[0], device=boxes.device, dtype=boxes.dtype)[:, None, None]
        regions = torch.cat([number.expand(-1, boxes.shape[1], 1), boxes], 2).flatten(0, 1)
        levels = [named[name] for name in pooler.featmap_names if name in named]
        own = pooler.map_levels([boxes.flatten(0, 1)])[:, None, None, None]
        pooled = None
        for number_of, (level, scale) in enumerate(zip(levels, pooler.scales, strict=True)):
            part = roi_align(level, regions, pooler.output_size, scale, pooler.sampling_ratio)
            pooled = part if pooled is None else torch.where(own == number_of, part, pooled)
        assert pooled is not None
        return pooled

    def _detections(self, proposals: _Boxes, logits: Tensor, deltas: Tensor) -> _Boxes:
        heads = self.plain.roi_heads
        count, classes = proposals.scores.shape[1], logits.shape[1]
        boxes = heads.box_coder.decode_single(deltas, proposals.boxes.reshape(-1, 4))
        boxes = boxes.reshape(-1, count, classes, 4)[:, :, 1:].clamp(0, self.size)
        scores = logits.softmax(1).reshape(-1, count, classes)[:, :, 1:]
        there = (scores > heads.score_thresh) & _large(boxes, 1e-2) & (proposals.scores > 0)[..., None]
        numbers = torch.arange(classes - 1, device=scores.device).expand_as(scores)
        found = _Boxes(boxes.flatten(1, 2), torch.where(there, scores, NONE).flatten(1), numbers.flatten(1))
        return self._best(found, heads.nms_thresh, heads.detections_per_img)


class _Dense(_Static):
    """Detectors that judge each anchor by itself, level by level: RetinaNet's `postprocess_detections`."""

    def forward(self, inputs: Tensor) -> Tensor:
        plain = self.plain
        given = plain.head(self._features(self._padded(inputs)))
        scores = self._scores(given)
        classes = scores.shape[2]
        parts = []
        begin = 0
        for count in self.counts:
            likely, at = scores[:, begin : begin + count].flatten(1).topk(min(plain.topk_candidates, count * classes))
            anchor = at // classes
            boxes = self._decoded(
                given["bbox_regression"][:, begin : begin + count].gather(1, anchor[..., None].expand(-1, -1, 4)),
                self.anchors[begin : begin + count][anchor],
                self._coder(),
            )
            parts.append(_Boxes(boxes, torch.where(likely > plain.score_thresh, likely, NONE), at % classes))
            begin += count
        found = self._best(_together(parts), plain.nms_thresh, plain.detections_per_img)
        return self._joined(_without_background(found))

    def _scores(self, given: dict[str, Tensor]) -> Tensor:
        raise NotImplementedError

    def _coder(self) -> Any:
        raise NotImplementedError


class _RetinaNet(_Dense):
    def _scores(self, given: dict[str, Tensor]) -> Tensor:
        return given["cls_logits"].sigmoid()

    def _coder(self) -> Any:
        return self.plain.box_coder.decode_single


class _Fcos(_Dense):
    def _scores(self, given: dict[str, Tensor]) -> Tensor:
        return (given["cls_logits"].sigmoid() * given["bbox_ctrness"].sigmoid()).sqrt()

    def _coder(self) -> Any:
        return self.plain.box_coder.decode


class _Ssd(_Static):
    """SSD and SSDlite: `SSD.postprocess_detections`, class by class."""

    def forward(self, inputs: Tensor) -> Tensor:
        plain = self.plain
        given = plain.head(self._features(self._padded(inputs)))
        scores = given["cls_logits"].softmax(2)[:, :, 1:].transpose(1, 2)  # [n, classes, anchors]
        deltas = given["bbox_regression"]
        boxes = self._decoded(deltas, self.anchors.expand_as(deltas), plain.box_coder.decode_single)
        likely, at = scores.topk(min(plain.topk_candidates, scores.shape[2]), dim=2)
        numbers = torch.arange(scores.shape[1], device=scores.device)[:, None].expand_as(at)
        found = _Boxes(
            boxes.gather(1, at.flatten(1)[..., None].expand(-1, -1, 4)),
            torch.where(likely > plain.score_thresh, likely, NONE).flatten(1),
            numbers.flatten(1),
        )
        return self._joined(self._best(found, plain.nms_thresh, plain.detections_per_img))


def _large(boxes: Tensor, least: float) -> Tensor:
    """Whether both sides of boxes [..., 4] are at least so long."""
    return ((boxes[..., 2:] - boxes[..., :2]) >= least).all(-1)


def _together(parts: list[_Boxes]) -> _Boxes:
    return _Boxes(*(torch.cat(each, 1) for each in zip(*parts, strict=True)))


def _without_background(found: _Boxes) -> _Boxes:
    """Classes from 0 on, where the detector counts them with background as the first."""
    return found._replace(classes=(found.classes - 1) * (found.scores > 0))
