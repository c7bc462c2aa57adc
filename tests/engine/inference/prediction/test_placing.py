"""Conversion of a model's outputs to predictions in the size of the original image, and of masks to text formats."""

from __future__ import annotations

import numpy as np
import pycocotools.mask
import pytest
import torch
from torch.nn import functional
from torchvision.models.detection.roi_heads import paste_masks_in_image

from engine.data.decoding.outlines import Window
from engine.data.decoding.view import View
from engine.inference import placing
from engine.inference.placing import project_in_bands, to_objects
from engine.inference.prediction.outlines import encode_runs, measure_boundary, trace_polygons
from engine.tasks.predictions import MASK_THRESHOLD, ObjectScores

SIDES = (20, 40)
VIEW = View(scale_y=2.0, scale_x=0.5, top=4.0, left=6.0)


@pytest.mark.parametrize("masks", [None, np.zeros((6, 4, 4))])
def test_objects_are_placed_in_the_image(masks: np.ndarray | None) -> None:
    # In the image: inside, below the threshold, over two edges, right of the image, below it, and exactly at its score.
    in_image = [(2, 3, 12, 9), (0, 0, 4, 4), (-8, 15, 9, 24), (40, 2, 50, 8), (4, 20, 9, 30), (30, 1, 48, 7)]
    offsets, scales = np.array([6.0, 4.0] * 2), np.array([0.5, 2.0] * 2)
    if masks is not None:
        masks[0, :2], masks[2], masks[5, :, 2:] = 1.0, 1.0, 1.0
    scores = ObjectScores(
        np.array(in_image) * scales + offsets,
        np.array([0.9, 0.2, 0.8, 0.7, 0.6, 0.5]),
        np.array([2, 1, 0, 1, 1, 3]),
        masks,
    )
    found = to_objects(scores, VIEW, SIDES, ("a", "b", "c", "d"), 0.5)
    assert (found.classes, found.size) == (("a", "b", "c", "d"), SIDES)
    assert found.boxes.tolist() == [[2, 3, 12, 9], [0, 15, 9, 20], [30, 1, 40, 7]]
    assert found.scores.tolist() == pytest.approx([0.9, 0.8, 0.5])
    assert found.numbers.tolist() == [2, 0, 3]
    if masks is None:
        assert found.windows is None
        return
    selected = [0, 2, 5]
    unclipped, probabilities = torch.tensor(in_image)[selected].float(), torch.from_numpy(masks[selected]).float()
    expected = paste_masks_in_image(probabilities[:, None], unclipped, SIDES)[:, 0] >= MASK_THRESHOLD
    np.testing.assert_array_equal(found.masks, expected.numpy())


def test_maps_are_projected_in_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.rand((2, 12, 12), generator=torch.Generator().manual_seed(0))
    (complete,) = project_in_bands(values, View(3.0, 3.0, 0, 0), 4, 4)
    assert torch.equal(complete, values[:, 1::3, 1::3])
    expected = functional.interpolate(values[None], (30, 24), mode="bilinear", align_corners=False)[0]
    monkeypatch.setattr(placing, "BAND_VALUES", 2 * 24 * 7)
    bands = list(project_in_bands(values, View(12 / 30, 0.5, 0, 0), 30, 24))
    assert [band.shape[1] for band in bands] == [7, 7, 7, 7, 2]
    torch.testing.assert_close(torch.cat(bands, 1), expected)


def test_runs_and_outlines_describe_the_mask() -> None:
    random = np.random.default_rng(0)
    for top, left, height, width in ((3, 2, 5, 7), (0, 0, 12, 20), (0, 4, 12, 3), (7, 15, 5, 5), (2, 2, 3, 4)):
        pixels = random.random((height, width)) < (0.0 if height == 3 else 1.0 if width == 3 else 0.6)
        mask = np.zeros((12, 20), bool)
        mask[top : top + height, left : left + width] = pixels
        runs = encode_runs(Window(top, left, pixels), 12, 20)
        assert runs == pycocotools.mask.encode(np.asfortranarray(mask.astype(np.uint8)))["counts"].decode()
    ring = np.ones((5, 6), bool)
    ring[1:4, 1:3], ring[:, 4], ring[0, 5] = False, False, False
    outer, right = trace_polygons(Window(10, 20, ring))
    assert outer == (20, 10, 24, 10, 24, 15, 20, 15)
    assert right == (25, 11, 26, 11, 26, 15, 25, 15)
    assert [measure_boundary(each) for each in (outer, right)] == [18, 10]
