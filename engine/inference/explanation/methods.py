"""How a heat map is made of a layer's activations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017, equations 1 and 2): the channels of `activations` [C, h, w], each weighed by
    the mean of its `gradients` [C, h, w], added up, and what is negative left out; [h, w].
    """
    return (gradients.mean((1, 2), keepdim=True) * activations).sum(0).relu()


def local_grad_cam(activations: Tensor, gradients: Tensor) -> Tensor:
    """The same with the gradient of each place by itself, as detections need (Zhao and Chan 2023, ODAM, equation 3,
    without its smoothing): by means over the whole image, one detection lights up all objects of its kind.
    """
    return (gradients * activations).sum(0).relu()


def eigen_cam(activations: Tensor) -> Tensor:
    """Eigen-CAM (Muhammad and Yeasin 2020): the projection of `activations` [C, h, w] on the first principal
    component of the places' features; [h, w]. Of its two signs the one is taken that goes with the strength of the
    activations.
    """
    height, width = activations.shape[1:]
    places = activations.flatten(1).T.double()
    centred = places - places.mean(0)
    _, _, components = torch.linalg.svd(centred, full_matrices=False)
    projected = centred @ components[0]
    strength = places.norm(dim=1)
    sign = torch.where((projected * (strength - strength.mean())).sum() < 0, -1.0, 1.0)
    return (sign * projected).relu().reshape(height, width).float()


def heat(levels: Sequence[Tensor], side: int) -> Tensor:
    """Maps [h, w] of one or several sizes as one of a square of `side` pixels, from 0 to 1; all 0 where nothing
    speaks for the class.
    """
    grown = [
        functional.interpolate(level[None, None], (side, side), mode="bilinear", align_corners=False)[0, 0]
        for level in levels
    ]
    whole = torch.stack(grown).sum(0)
    return whole / whole.max().clamp(min=torch.finfo(whole.dtype).tiny)
