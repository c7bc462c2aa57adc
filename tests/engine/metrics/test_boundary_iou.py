"""Boundary IoU, compared with its definition. The boundary of a mask is the part that repeated erosion removes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import binary_erosion

from engine.data.decoding.mask_values import NO_CLASS
from engine.metrics.boundary_iou import BoundaryMetric, compute_strip_width


def strip(mask: np.ndarray) -> np.ndarray:
    eroded = binary_erosion(mask, np.ones((3, 3)), iterations=compute_strip_width(*mask.shape), border_value=0)
    return mask & ~eroded


def test_boundary_iou_matches_its_definition() -> None:
    random = np.random.default_rng(0)
    coarse = random.integers(0, 3, (2, 2, 5, 6))
    found, true = coarse.repeat(16, 2).repeat(16, 3)
    true = np.roll(true, 3, 2)
    true[0, :9] = NO_CLASS
    found[0, 40:] = 3  # is never true
    metric = BoundaryMetric(5)
    for image in range(2):
        scores = torch.nn.functional.one_hot(torch.from_numpy(found[image]), 5).permute(2, 0, 1)
        metric.update(scores[None].float(), torch.from_numpy(true[image])[None])
    metric.update(torch.zeros(1, 5, *true.shape[1:]), torch.full_like(torch.from_numpy(true[:1]), NO_CLASS))
    for number in range(4):
        both = either = 0
        for plane, other in zip(found, true, strict=True):
            one = strip((plane == number) & (other != NO_CLASS))
            two = strip(other == number)
            both, either = both + (one & two).sum(), either + (one | two).sum()
        assert metric.per_class()["Boundary IoU"][number] == pytest.approx(both / either, abs=1e-9)
    assert metric.per_class()["Boundary IoU"][4] is None
    shares = [share for share in metric.per_class()["Boundary IoU"] if share is not None]
    assert metric.compute()["boundary_iou"] == pytest.approx(np.mean(shares))
