"""Mask2Former and EoMT for instance and semantic segmentation, with the losses that the library computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.contract.images import SizeLimits
from engine.data.decoding.mask_values import NO_CLASS
from engine.models import weights
from engine.models.base import validate_image_size
from engine.models.hugging_face.hub_model import HubModel, crop_masks, derive_image_seeds, sum_by_kind, use_seed
from engine.models.tensor_detector import FINE_MASK_SIDE, Detections
from engine.models.torchvision_detectors import convert_instance_targets, find_true_positions, has_instance, is_present

MASK_THRESHOLD = 0.5
MIN_SCORE = 1e-6
"""Lower limit for the score of a class at a pixel, so that its logarithm is finite."""


class HubSegmenter(HubModel):
    """Mixin for models whose queries each predict a class and a mask.

    The losses for masks are means over all masks in the batch. The loss for classes is a weighted mean over all
    queries, in which queries without an object have a small weight.
    """

    _layers: list[dict[str, Tensor]]
    _probabilities: tuple[float, ...]

    @property
    def attn_mask_probs(self) -> Any:
        """EoMT's probabilities that a query attends only to its mask, one per layer.

        They are a tensor or, while the model is exported, Python numbers.
        """
        return self._probabilities if torch.compiler.is_exporting() else self._buffers["attn_mask_probs"]

    def split_by_class(self, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Split the targets of each image into k masks. Returns their classes [k] and the masks, float [k, h, w]."""
        raise NotImplementedError

    def count_masks(self, targets: Tensor) -> Tensor:
        """Return the number of masks in each image, [n]."""
        raise NotImplementedError

    def loss_units(self, targets: Tensor) -> Tensor:
        """Return the divisors of the class loss and the two mask losses, [3].

        The class loss is divided by the sum of the query weights, and the mask losses by the number of masks.
        """
        counts = self.count_masks(targets).float()
        queries, weight = self.config.num_queries, self.config.no_object_weight
        matched_queries = counts.clamp(max=queries)
        query_weights = (matched_queries + weight * (queries - matched_queries)).sum()
        return torch.stack([query_weights, counts.sum(), counts.sum()])

    def compute_losses(self, inputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the losses of a batch by name, each divided by the number of its images.

        The losses are sums over queries or masks. transformers returns means, which are multiplied by `loss_units`.
        """
        labels = self.split_by_class(targets)
        criterion: Any = self.criterion
        criterion.seeds = criterion.matcher.seeds = derive_image_seeds(inputs)
        self._layers = []  # `get_loss` appends the losses of each layer of the decoder
        self.call_library(
            inputs, mask_labels=[masks for _, masks in labels], class_labels=[classes for classes, _ in labels]
        )
        layers, self._layers = self._layers, []
        sums: dict[str, Tensor] = {}
        for layer_losses in layers:
            for name, loss in sum_by_kind(layer_losses, self.loss_names).items():
                sums[name] = sums[name] + loss if name in sums else loss
        divisors_per_image = self.loss_units(targets).clamp(min=1) / len(inputs)
        return {name: sums[name] * divisor for name, divisor in zip(self.loss_names, divisors_per_image, strict=True)}

    def get_loss(self, loss_dict: dict[str, Tensor]) -> Any:
        """Save the weighted losses of one decoder layer for `compute_losses`, and return their sum.

        The model's forward pass calls this for each layer, in place of the method of transformers with this name.
        """
        self._layers.append(loss_dict)
        return sum(loss_dict.values())

    def adapt_to_size(self, title: str, size: int) -> None:
        """Adapt the model to images of `size` pixels. Raises TaskError if it can't process this size."""
        validate_image_size(title, size, *self.accepted_sizes)
        if not hasattr(self, "grid_size"):  # only EoMT learns the position of each patch
            return
        self.config.image_size = size
        cells = size // self.config.patch_size
        self.grid_size = (cells, cells)
        embeddings: Any = self.embeddings
        previous = embeddings.position_embeddings
        resized = _resize_positions(previous.weight.data, cells)
        embeddings.position_embeddings = nn.Embedding.from_pretrained(resized, freeze=False)
        embeddings.position_ids = torch.arange(cells**2)[None]

    @property
    def size_limits(self) -> SizeLimits | None:
        return None if hasattr(self, "grid_size") else super().size_limits

    def adapt_weights(self, state: weights.State) -> weights.State:
        """Return the weights `state` with the position embeddings resized to the model's grid of patches.

        Models without such a grid need no change.
        """
        name = "embeddings.position_embeddings.weight"
        if not hasattr(self, "grid_size") or name not in state:
            return state
        return state | {name: _resize_positions(state[name], self.grid_size[0])}


def save_probabilities(model: Any, _: object = None) -> None:
    """Copy EoMT's buffer of mask attention probabilities to Python numbers, which are used while the model is exported.

    It is called after weights are loaded.
    """
    buffer = model._buffers.get("attn_mask_probs")
    if buffer is not None and not buffer.is_meta:
        model._probabilities = tuple(buffer.tolist())


class InstanceSegmenter(HubSegmenter):
    """Mixin for instance segmentation models whose queries each predict one object."""

    def split_by_class(self, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [(each["labels"] - 1, each["masks"].float()) for each in convert_instance_targets(targets)]

    def count_masks(self, targets: Tensor) -> Tensor:
        return has_instance(targets).sum(1)

    def compute_predictions(self, inputs: Tensor) -> Tensor:
        """Return the detections with the highest scores in each image. A detection is one query with one class.

        Its box surrounds its mask. As in the post-processing of transformers, its score is the probability of the class
        times the mean probability of the mask's pixels.
        """
        outputs = self.call_library(inputs)
        probabilities = outputs.class_queries_logits.float().softmax(-1)[..., :-1]  # the last one means no object
        best = probabilities.flatten(1).topk(min(self.max_detections, probabilities[0].numel()))
        selected = (outputs.masks_queries_logits.float(), best.values, best.indices)
        if torch.compiler.is_exporting():
            return self._make_detection_rows(inputs, probabilities.shape[-1], *selected)
        # One image at a time, since masks of the images' size take much memory.
        images = zip(*(tensor.split(1) for tensor in selected), strict=True)
        return torch.cat([self._make_detection_rows(inputs, probabilities.shape[-1], *image) for image in images])

    def _make_detection_rows(
        self, inputs: Tensor, classes: int, logits: Tensor, class_scores: Tensor, positions: Tensor
    ) -> Tensor:
        """Return detections as rows of a tensor, [n, k, 6 + s * s].

        The columns are the box, the score, the class, and the mask inside the box, which is scaled to s = 56 px.

        Args:
            inputs: Images.
            classes: Number of classes.
            logits: Masks of all queries, [n, q, h, w].
            class_scores: The k highest class probabilities over all queries, [n, k].
            positions: Indices of these probabilities in the flattened [queries, classes], [n, k].
        """
        queries = (positions // classes)[..., None, None].expand(-1, -1, *logits.shape[-2:])
        masks = _compute_mask_probabilities(logits.gather(1, queries), inputs).flatten(0, 1)
        is_inside = masks >= MASK_THRESHOLD
        boxes = compute_boxes(is_inside)
        mean_probabilities = (masks * is_inside).sum((1, 2)) / is_inside.sum((1, 2)).clamp(min=1)
        scores = class_scores.flatten() * mean_probabilities
        columns = [boxes, scores[:, None], (positions % classes).flatten()[:, None].float()]
        mask_values = crop_masks(masks, boxes, (inputs.shape[-2], inputs.shape[-1]), FINE_MASK_SIDE)
        return torch.cat([*columns, mask_values], 1).unflatten(0, class_scores.shape)

    def detect(self, inputs: Tensor) -> Detections:
        """Return the best class and score of each query and the box around its mask, in a dict for each image.

        The keys are those of torchvision's detectors, and class 0 is the background.
        """
        outputs = self.call_library(inputs)
        detections = []
        for logits, masks in zip(outputs.class_queries_logits.float(), outputs.masks_queries_logits, strict=True):
            scores, labels = logits.softmax(-1)[:, :-1].max(1)
            is_inside = _compute_mask_probabilities(masks.detach().float()[None], inputs)[0] >= MASK_THRESHOLD
            detections.append({"boxes": compute_boxes(is_inside), "scores": scores, "labels": labels + 1})
        return detections


class PixelSegmenter(HubSegmenter):
    """Mixin for semantic segmentation. All pixels of a class in an image form one mask."""

    def split_by_class(self, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Split the targets of each image into one mask per class that occurs. Returns the classes and the masks."""
        return [
            (classes, (plane == classes[:, None, None]).float())
            for plane, classes in zip(targets, find_true_positions(_has_class(targets)), strict=True)
        ]

    def count_masks(self, targets: Tensor) -> Tensor:
        return _has_class(targets).sum(1)

    def compute_predictions(self, inputs: Tensor) -> Tensor:
        """Return the logarithm of the score of each class at each pixel, [n, classes, h, w], in fp32.

        The scores are those that the post-processing of transformers computes.
        """
        outputs = self.call_library(inputs)
        classes = outputs.class_queries_logits.float().softmax(-1)[..., :-1]
        masks = _compute_mask_probabilities(outputs.masks_queries_logits.float(), inputs)
        with torch.autocast(inputs.device.type, enabled=False):
            scores = torch.einsum("bqc,bqhw->bchw", classes, masks)
        return scores.clamp(min=MIN_SCORE).log()


def _has_class(planes: Tensor) -> Tensor:
    """Return a bool tensor [n, 255] that is True for each class that occurs in the planes [n, h, w]."""
    return is_present(planes)[:, :NO_CLASS]


def _compute_mask_probabilities(logits: Tensor, inputs: Tensor) -> Tensor:
    """Return the probabilities of masks [n, q, h, w], enlarged to the size of `inputs`."""
    return functional.interpolate(logits, inputs.shape[-2:], mode="bilinear", align_corners=False).sigmoid()


def compute_boxes(masks: Tensor) -> Tensor:
    """Return the boxes around masks, bool [k, h, w], as x1, y1, x2, y2 in pixels, float [k, 4].

    The box of an empty mask consists of zeros.
    """
    sides = []
    for axis in (1, 2):  # columns and rows
        positions = torch.arange(1, masks.shape[3 - axis] + 1, device=masks.device)
        occupied_positions = masks.any(axis) * positions
        first = torch.where(occupied_positions > 0, occupied_positions, len(positions) + 1).amin(1) - 1
        sides.append((first.clamp(max=len(positions) - 1), occupied_positions.amax(1)))
    (left, right), (top, bottom) = sides
    boxes = torch.stack([left, top, right, bottom], 1).float()
    return boxes * (right > 0)[:, None]


def _resize_positions(table: Tensor, cells: int) -> Tensor:
    """Resample learned positions [g * g, d] to a grid with `cells` patches on each side."""
    side = round(len(table) ** 0.5)
    if side == cells:
        return table
    grid = table.T.reshape(1, -1, side, side).float()
    resized = functional.interpolate(grid, (cells, cells), mode="bicubic", align_corners=False, antialias=True)
    return resized[0].flatten(1).T.to(table.dtype).contiguous()


class MatcherByImage:
    """Mixin that makes a matcher compare masks at points that depend only on their image, not on the batch.

    `seeds` has a seed for each image.
    """

    seeds: list[int]

    def forward(self, masks: Tensor, classes: Tensor, mask_labels: list[Tensor], class_labels: list[Tensor]) -> Any:
        """Match each image alone, under its own seed, so that its result doesn't depend on the rest of the batch."""
        matches: list[Any] = []
        for index, seed in enumerate(self.seeds):
            if not len(class_labels[index]):
                matches.append((torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)))
                continue
            image = slice(index, index + 1)
            with use_seed(seed, masks.device):
                matches += super().forward(masks[image], classes[image], mask_labels[image], class_labels[image])  # type: ignore[misc]
        return matches


class LossByImage:
    """Mixin that makes a loss module compare masks in fp32, at points that depend only on their image."""

    seeds: list[int]

    def forward(
        self,
        masks_queries_logits: Tensor,
        class_queries_logits: Tensor,
        mask_labels: list[Tensor],
        class_labels: list[Tensor],
        auxiliary_predictions: Any = None,
    ) -> Any:
        """Compute the losses for classes and masks in fp32, even under autocast."""
        auxiliary = [{name: tensor.float() for name, tensor in layer.items()} for layer in auxiliary_predictions or ()]
        masks, classes = masks_queries_logits.float(), class_queries_logits.float()
        with torch.autocast(masks.device.type, enabled=False):
            return super().forward(masks, classes, mask_labels, class_labels, auxiliary or None)  # type: ignore[misc]

    def loss_masks(self, masks: Tensor, mask_labels: list[Tensor], indices: Any, num_masks: Any) -> dict[str, Tensor]:
        """Sum the mask losses of single images, each under its own seed, since transformers draws random points."""
        sums = dict.fromkeys(("loss_mask", "loss_dice"), masks.sum() * 0)
        for index, (seed, pairs) in enumerate(zip(self.seeds, indices, strict=True)):
            if len(pairs[0]):
                image = slice(index, index + 1)
                with use_seed(seed, masks.device):
                    image_losses = super().loss_masks(masks[image], mask_labels[image], [pairs], num_masks)  # type: ignore[misc]
                sums = {name: loss + image_losses[name] for name, loss in sums.items()}
        return sums
