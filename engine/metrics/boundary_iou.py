"""Boundary IoU: the IoU of the pixels of a class near its true and its predicted outline.

Source: Cheng et al. 2021, "Boundary IoU: Improving Object-Centric Image Segmentation Evaluation", equation 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from engine.data.decoding.mask_values import NO_CLASS
from engine.metrics.base import Metric
from engine.metrics.class_counts import ClassValues, compute_ratios

DILATION = 0.02
"""Width of the strip along an outline, as a fraction of the image's diagonal.

It is the default in Cheng et al. 2021 and their code.
"""


def compute_strip_width(height: int, width: int) -> int:
    """Return the width in pixels of the strip along an outline in an image of this height and width."""
    return max(1, round(DILATION * math.hypot(height, width)))


def find_outline_strips(masks: Tensor, width: int) -> Tensor:
    """Return a bool tensor [n, h, w] that is True for the pixels of the bool `masks` [n, h, w] near their outline.

    Such a pixel is inside the mask and at most `width` steps away from a pixel outside. Steps may be diagonal. Pixels
    beyond the border of the image count as outside.
    """
    outside = functional.pad(~masks, (width, width, width, width), value=True).float()[:, None]
    side = 2 * width + 1
    near = functional.max_pool2d(functional.max_pool2d(outside, (side, 1), 1), (1, side), 1)[:, 0]
    return masks & (near > 0)


class BoundaryMetric(Metric):
    """Boundary IoU of each class.

    `counters` has two numbers of pixels for each class: those in the outline strips of both the prediction and the
    target, and those in at least one of the two strips. Pixels with `NO_CLASS` are in neither. Outputs [n, C, h, w] are
    class scores, and targets are int64 [n, h, w].
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.counters = torch.zeros((2, classes), dtype=torch.float64)

    @torch.no_grad()
    def update(self, outputs: Tensor, targets: Tensor) -> None:
        """Add the intersections and unions of the strips along the classes' outlines to the counters."""
        counters = self.counters.to(outputs.device)
        width = compute_strip_width(*targets.shape[-2:])
        predicted = outputs.argmax(1).where(targets != NO_CLASS, NO_CLASS)
        for predicted_plane, true_plane in zip(predicted, targets, strict=True):
            occurring = torch.cat([predicted_plane.unique(), true_plane.unique()]).unique()
            occurring = occurring[occurring != NO_CLASS]
            planes = (predicted_plane, true_plane)
            found, true = (find_outline_strips(plane[None] == occurring[:, None, None], width) for plane in planes)
            counters[0, occurring] += (found & true).sum((1, 2)).double()
            counters[1, occurring] += (found | true).sum((1, 2)).double()
        self.counters = counters

    def compute(self) -> dict[str, float]:
        """Return the mean boundary IoU by id, over the classes that occur in the annotations or predictions."""
        values = [value for value in self.per_class()["Boundary IoU"] if value is not None]
        return {"boundary_iou": sum(values) / len(values)} if values else {}

    def per_class(self) -> dict[str, ClassValues]:
        intersections, unions = self.counters
        return {"Boundary IoU": compute_ratios(intersections, unions)}
