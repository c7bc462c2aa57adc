"""Detectors of transformers as `LoadableDetector`, with the losses that the library computes."""

from __future__ import annotations

import copy
import sys
from typing import Any, ClassVar, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from torchvision.ops import box_convert
from transformers.loss import loss_lw_detr, loss_rf_detr
from transformers.utils import logging

from engine.models import weights
from engine.models.base import TaskError
from engine.models.model_surgery import adapt_first_conv, find_first_conv, match_channels
from engine.models.tensor_detector import Detections, LoadableDetector
from engine.models.torchvision_detectors import box_targets
from engine.system.format import listed

logging.set_verbosity_error()
logging.disable_progress_bar()
_COEFFICIENTS = {"ce": "class_loss", "bbox": "bbox_loss", "giou": "giou_loss"}
"""Names of RF-DETR's coefficients of losses; D-FINE and RT-DETR multiply by theirs themselves."""


class _Kind(NamedTuple):
    """Facts about a family of detectors.

    Attributes:
        losses: Kinds of losses, each a sum over the layers of the decoder and the queries for denoising.
        backbone: Name of the module that pretrained weights of a classifier would be for.
        stride: Number that divides the sides of images; 0 for the patch size times the number of windows.
    """

    losses: tuple[str, ...]
    backbone: str = "model.backbone"
    stride: int = 32


KINDS = {
    "DFine": _Kind(("vfl", "bbox", "giou", "fgl", "ddf")),
    "RTDetrV2": _Kind(("vfl", "bbox", "giou")),
    "Deimv2": _Kind(("mal", "bbox", "giou", "fgl", "ddf"), "model.conv_encoder.model"),
    "RfDetr": _Kind(("ce", "bbox", "giou"), "model.backbone.backbone", stride=0),
}


class HubDetector(LoadableDetector):
    """Mixin for detectors of transformers, whose losses are sums over the objects of the batch.

    Attributes:
        config: Configuration of transformers.
        library_class: Class of transformers.
        stride: Number that divides the sides of images.
        channels: Channels of the images.
        pyramid: Name of the module that computes feature maps.
    """

    config: Any
    library_class: ClassVar[Any]
    stride: int
    channels: int
    pyramid: str

    def losses(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return each image's share of the sums of losses over all objects in these images.

        The library divides the sums by the number of objects, or of their copies for groups of queries.
        """
        height, width = inputs.shape[-2:]
        scale = inputs.new_tensor([width, height, width, height])
        labels = [
            {"class_labels": each["labels"] - 1, "boxes": box_convert(each["boxes"] / scale, "xyxy", "cxcywh")}
            for each in box_targets(targets)
        ]
        found = self.call_library(inputs, labels=labels).loss_dict
        copies = getattr(self.config, "group_detr", 1)
        per_image = max(sum(len(each["boxes"]) for each in labels) * copies, 1) / copies / len(inputs)
        return {name: loss * per_image for name, loss in sum_by_kind(found, self.config, self.loss_names).items()}

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the queries with the highest scores, each for one class, as transformers' post-processing does."""
        boxes, scores, classes = self._found(inputs)
        scores, best = scores.flatten(1).topk(min(self.max_detections, scores[0].numel()))
        count = len(classes)
        boxes = boxes.gather(1, (best // count)[..., None].expand(-1, -1, 4))
        return torch.cat([boxes, scores[..., None], (best % count)[..., None].float()], 2)

    def detections(self, inputs: Tensor) -> Detections:
        found = []
        for boxes, scores in zip(*self._found(inputs)[:2], strict=True):
            best, labels = scores.max(1)
            found.append({"boxes": boxes, "scores": best, "labels": labels + 1})
        return found

    def _found(self, inputs: Tensor) -> tuple[Tensor, Tensor, range]:
        """Return boxes [n, q, 4] in pixels, scores [n, q, classes], and the classes."""
        outputs = self.call_library(inputs)
        height, width = inputs.shape[-2:]
        scale = torch.tensor([width, height, width, height], dtype=torch.float32, device=inputs.device)
        boxes = box_convert(outputs.pred_boxes.float(), "cxcywh", "xyxy").clamp(0, 1) * scale
        return boxes, outputs.logits.float().sigmoid(), range(outputs.logits.shape[-1])

    def fit_size(self, title: str, size: int) -> None:
        """Use fewer queries for small images with fewer positions, since the library selects queries among these.

        RF-DETR has weights for each query.
        """
        queries = self.config.num_queries
        strides = getattr(self.config, "feat_strides", None) or [self.config.backbone_config.patch_size]
        smallest = self.stride
        while hasattr(self.config, "group_detr") and _positions(smallest, strides) < queries:
            smallest += self.stride
        if size % self.stride or size < smallest:
            valid = max(smallest, round(size / self.stride) * self.stride)
            message = f"{title} needs an image size from {smallest} px on that is a multiple of {self.stride} px."
            raise TaskError("image_size", message, f"Set {valid}, or leave it empty.")
        self.max_detections = self.config.num_queries = min(queries, _positions(size, strides))

    def load_initial(self, initial: weights.Initial) -> None:
        """Load weights by the names of any version of transformers; layers for the classes only if all of them fit."""
        config = copy.deepcopy(self.config)
        given = {name: tensor for name, tensor in initial.state.items() if tensor.is_floating_point() or tensor.dim()}
        first = find_first_conv(self)
        options = {"config": config, "ignore_mismatched_sizes": True, "output_loading_info": True}
        try:
            loaded, info = self.library_class.from_pretrained(None, state_dict=given, **options)
        except Exception as error:  # which kind depends on what is missing
            message = f"{initial.source} does not fit the model ({type(error).__name__})."
            raise TaskError(initial.field, message, "Choose weights of this model.") from error
        state, mine = loaded.state_dict(), self.state_dict()
        differing = {name for name, *_ in info["mismatched_keys"]}
        lacking = sorted(name for name in info["missing_keys"] if name in mine and "num_batches_tracked" not in name)
        if first is not None and f"{first}.weight" in state:
            state[f"{first}.weight"] = match_channels(state[f"{first}.weight"], self.channels)
        lacking += sorted(name for name in differing if not any(part in name for part in _OF_CLASSES))
        if lacking:
            message = (
                f"{initial.source} does not fit the model: {listed(lacking, most=3)} missing or of a different shape."
            )
            raise TaskError(initial.field, message, "Choose weights of this model.")
        kept = [name for name in mine if any(part in name for part in _OF_CLASSES)] if differing else []
        self.load_state_dict(state | {name: mine[name] for name in kept})


_OF_CLASSES = ("class_embed", "score_head", "denoising_class_embed")
"""Parts of the names of weights whose shapes depend on the number of classes."""


def _positions(size: int, strides: list[int]) -> int:
    """Return the number of positions in the feature maps with these strides."""
    return sum((size // stride) ** 2 for stride in strides)


def sum_by_kind(losses: dict[str, Tensor], config: Any, kinds: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the weighted sum of the losses of each kind; "loss_bbox_aux_0" is of the kind "bbox"."""
    sums = {}
    for kind in kinds:
        factor = getattr(config, f"{_COEFFICIENTS.get(kind, '')}_coefficient", 1.0)
        of_kind = [loss for name, loss in losses.items() if name.removeprefix("loss_").startswith(kind)]
        if of_kind:
            sums[kind] = torch.stack([torch.as_tensor(loss).reshape(()) for loss in of_kind]).sum() * factor
    return sums


def construct(kind: str, config: dict[str, Any], classes: int, channels: int) -> nn.Module:
    """Build a detector with random weights; `kind` is a key of `KINDS`, `config` the arguments of its configuration."""
    facts = KINDS[kind]
    plain_class = getattr(transformers, f"{kind}ForObjectDetection")
    # `len` of a tensor is a constant in exported files, which then take batches of one size.
    vars(sys.modules[plain_class.__module__])["len"] = _length
    given = copy.deepcopy(config)
    if facts.stride:
        given.setdefault("freeze_backbone_batch_norms", False)  # the job decides
    built_config = getattr(transformers, f"{kind}Config")(num_labels=classes, **given)
    plain = plain_class(built_config)
    backbone = built_config.backbone_config
    attributes = {
        "library_class": plain_class,
        "loss_names": facts.losses,
        "max_detections": built_config.num_queries,
        "stride": facts.stride or backbone.patch_size * backbone.num_windows,
        "channels": channels,
        "heads": _outside(facts.backbone, plain),
        "pyramid": facts.backbone,
    }
    plain.__class__ = type(plain_class.__name__, (HubDetector, plain_class), attributes)
    if channels != 3:
        adapt_first_conv(plain, channels)
        for module in plain.modules():
            if getattr(module, "num_channels", None) == 3:
                module.num_channels = channels
    detector: nn.Module = plain
    return detector


def _length(values: Any) -> Any:
    """Return the length of `values`, of tensors as a number that torch.export can follow."""
    return values.shape[0] if isinstance(values, Tensor) else len(values)


def _outside(backbone: str, model: nn.Module) -> tuple[str, ...]:
    """Return the names of the modules that together hold all layers outside the module `backbone`."""
    path = backbone.split(".")
    found: list[str] = []
    for depth, inside in enumerate(path):
        parent = ".".join(path[:depth])
        children = (child for child, _ in model.get_submodule(parent).named_children() if child != inside)
        found += [f"{parent}.{child}" if parent else child for child in children]
    return tuple(found)


def _is_alone() -> bool:
    """Return False instead of whether torch.distributed is initialized.

    The strategies count the objects of all ranks. A sum inside of the loss would wait for ranks without a part of the batch.
    """
    return False


loss_lw_detr._is_torch_distributed_initialized = loss_rf_detr._is_torch_distributed_initialized = _is_alone
