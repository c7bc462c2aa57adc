"""Methods that compute a heat map from a layer's activations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Compute Grad-CAM (Selvaraju et al. 2017, equations 1 and 2) from activations and gradients [C, h, w].

    Channels are weighted by their mean gradient and summed; negative values are dropped. Returns [h, w].
    """
    return (gradients.mean((1, 2), keepdim=True) * activations).sum(0).relu()


def local_grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Compute Grad-CAM with the gradient of each position (Zhao and Chan 2023, ODAM, equation 3, without smoothing).

    Detections need this: with means over the image, one detection highlights all objects of its class.
    """
    return (gradients * activations).sum(0).relu()


def eigen_cam(activations: Tensor) -> Tensor:
    """Compute Eigen-CAM (Muhammad and Yeasin 2020): project activations [C, h, w] onto their first principal component.

    Its sign is chosen to correlate with the strength of the activations. Returns [h, w].
    """
    height, width = activations.shape[1:]
    positions = activations.flatten(1).T.double()
    centred = positions - positions.mean(0)
    _, _, components = torch.linalg.svd(centred, full_matrices=False)
    projected = centred @ components[0]
    strength = positions.norm(dim=1)
    sign = torch.where((projected * (strength - strength.mean())).sum() < 0, -1.0, 1.0)
    return (sign * projected).relu().reshape(height, width).float()


def heat(levels: Sequence[Tensor], side: int) -> Tensor:
    """Resize maps [h, w] to a square of `side` pixels, sum them and scale them to 0..1."""
    resized = [
        functional.interpolate(level[None, None], (side, side), mode="bilinear", align_corners=False)[0, 0]
        for level in levels
    ]
    total = torch.stack(resized).sum(0)
    return total / total.max().clamp(min=torch.finfo(total.dtype).tiny)
