"""Crops and normalisation: the same on every device, sample by sample, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchvision.transforms.v2 import functional

from engine.data.randomness import RandomStreams
from engine.data.transforms.crops import draw_crops
from engine.data.transforms.device_transforms import Normalisation, crop, gather_crops

CPU = torch.device("cpu")


def pixels(count: int, channels: int, side: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=torch.manual_seed(1))


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize(("count", "channels"), [(7, 3), (5, 1), (0, 3)])
def test_that_a_device_gathers_the_crops_that_the_cpu_copies(count: int, channels: int, mirror: bool) -> None:
    whole = pixels(count, channels, 20)
    crops = torch.from_numpy(draw_crops(4, RandomStreams(3), 2, np.arange(count), mirror=mirror))
    by_torchvision = [
        functional.crop(image, top, left, 16, 16).flip(-1) if mirrored else functional.crop(image, top, left, 16, 16)
        for image, (top, left, mirrored) in zip(whole, crops.tolist(), strict=True)
    ]
    expected = torch.stack(by_torchvision) if count else whole[..., :16, :16]
    assert torch.equal(crop(whole, crops, 16), expected)
    assert torch.equal(gather_crops(whole, crops, 16), expected)


def test_that_crops_reach_every_place_and_half_are_mirrored() -> None:
    crops = draw_crops(4, RandomStreams(0), 0, np.arange(4000), mirror=True)
    counts = np.stack([np.bincount(crops[:, column], minlength=5) for column in range(2)])
    assert counts.shape == (2, 5)
    assert abs(counts - 800).max() < 120
    assert abs(crops[:, 2].sum() - 2000) < 150
    assert not draw_crops(4, RandomStreams(0), 0, np.arange(4000), mirror=False)[:, 2].any()


def test_that_a_samples_crop_does_not_depend_on_the_others_of_its_batch() -> None:
    samples = np.array([5, 900, 17, 2**40])
    together = draw_crops(8, RandomStreams(7), 3, samples, mirror=True)
    assert np.array_equal(together[[2, 0]], draw_crops(8, RandomStreams(7), 3, samples[[2, 0]], mirror=True))
    assert not np.array_equal(together, draw_crops(8, RandomStreams(7), 4, samples, mirror=True))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_that_images_are_normalised_as_torchvision_does(memory_format: torch.memory_format) -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    whole = pixels(3, 3, 12)
    before = whole.clone()
    normalised = Normalisation(torch.tensor(mean), torch.tensor(std), CPU)(whole, memory_format)
    plain = functional.normalize(functional.to_dtype(whole, torch.float32, scale=True), list(mean), list(std))
    torch.testing.assert_close(normalised, plain, rtol=1e-5, atol=1e-6)
    assert normalised.is_contiguous(memory_format=memory_format)
    assert torch.equal(whole, before)
